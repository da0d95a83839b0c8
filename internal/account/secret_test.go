package account

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestFromSecrets(t *testing.T) {
	const key, token = "a key, 16 chars!", "a-token_16_chars"
	long := strings.Repeat("n", 63)
	for name, c := range map[string]struct {
		name, key, token string
		want             string // the error; "": accepted
	}{
		"least lengths":         {"default", key, token, ""},
		"longest name":          {long, key, token, ""},
		"name of one digit":     {"0", key, token, ""},
		"name too long":         {long + "n", key, token, errName.Error()},
		"no name":               {"", key, token, errName.Error()},
		"name begins with -":    {"-shop", key, token, errName.Error()},
		"name with a slash":     {"a/b", key, token, errName.Error()},
		"name with a line feed": {"shop\n", key, token, errName.Error()},
		"no key":                {"default", "", token, "the key must have at least 16 characters"},
		"key too short":         {"default", key[1:], token, "the key must have at least 16 characters"},
		"key with a tab":        {"default", key + "\tx", token, "the key must be visible ASCII without white space at its ends"},
		"key beyond ASCII":      {"default", key + "é", token, "the key must be visible ASCII without white space at its ends"},
		"key begins with space": {"default", " " + key, token, "the key must be visible ASCII without white space at its ends"},
		"key ends with space":   {"default", key + " ", token, "the key must be visible ASCII without white space at its ends"},
		"key ends with newline": {"default", key + "\n", token, "the key must be visible ASCII without white space at its ends"},
		"key of spaces":         {"default", strings.Repeat(" ", 16), token, "the key must be visible ASCII without white space at its ends"},
		"no token":              {"default", key, "", "the token must have at least 16 characters"},
		"token too short":       {"default", key, token[1:], "the token must have at least 16 characters"},
		"token with a slash":    {"default", key, token + "/", "the token must consist of A-Z a-z 0-9 _ -"},
		"token ends in newline": {"default", key, token + "\n", "the token must consist of A-Z a-z 0-9 _ -"},
	} {
		s, err := FromSecrets(c.name, c.key, c.token)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got error %q, want %q", name, got, c.want)
		}
		a, ok := NewRegistry(s).Authenticate(c.token, c.key)
		if want := c.want == ""; ok != want || (ok && a != Account{Name: c.name}) {
			t.Errorf("%s: Authenticate got %+v, %t, want %t", name, a, ok, want)
		}
	}
}

func TestGeneratedSecretsAreProperAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		key, token := Generate()
		if err := checkSecrets(key, token); err != nil {
			t.Fatalf("generated secrets: got error %q, want none", err)
		}
		for _, secret := range []string{key, token} {
			if len(secret) != generatedLength || seen[secret] {
				t.Fatalf("generated secret has %d characters, want %d; seen before: %t", len(secret), generatedLength, seen[secret])
			}
			seen[secret] = true
		}
	}
}

func TestNewEntryLetsItsSecretsIn(t *testing.T) {
	key, token, entry, err := New("shop")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(entry); strings.Contains(text, key) || strings.Contains(text, token) {
		t.Error("the entry holds a secret")
	}
	if !json.Valid(entry) || !strings.Contains(string(entry), "\n  \"name\": \"shop\",\n") {
		t.Errorf("got entry %s, want indented JSON", entry)
	}
	r := NewRegistry(mustParse(t, fmt.Sprintf(`{"accounts": [%s]}`, entry)))
	if a, ok := r.Authenticate(token, key); !ok || a != (Account{Name: "shop"}) {
		t.Errorf("Authenticate: got %+v, %t, want shop", a, ok)
	}
	if a, ok := r.ByKey(key); !ok || a.Name != "shop" {
		t.Errorf("ByKey: got %+v, %t, want shop", a, ok)
	}
}

func TestNewRefusesAName(t *testing.T) {
	key, token, entry, err := New("../shop")
	if err != errName || key != "" || token != "" || entry != nil {
		t.Errorf("got error %v and an entry of %d bytes, want %v and nothing", err, len(entry), errName)
	}
}
