package account

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func withFields(more string) []byte {
	return []byte(`{"accounts":[{"name":"shop","token":"sha256:` + strings.Repeat("1", 64) + `","keys":[{"key":"sha256:` + strings.Repeat("2", 64) + `"}],` + more + `}]}`)
}

func TestCredentialsAndPace(t *testing.T) {
	const canary = "EAAcanarycanarycanary"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, fields, wrong string
	}{
		{"in the file itself", `"whatsapp":{"phoneNumberId":"1","accessToken":"` + canary + `"}`, ""},
		{"in a file of its own", `"whatsapp":{"phoneNumberId":"1","accessTokenFile":"` + file + `"}`, ""},
		{"in both", `"whatsapp":{"phoneNumberId":"1","accessToken":"` + canary + `","accessTokenFile":"` + file + `"}`, "both given"},
		{"in a file that is not there", `"whatsapp":{"phoneNumberId":"1","accessTokenFile":"/nonexistent/x"}`, "accessTokenFile"},
		{"without a token", `"whatsapp":{"phoneNumberId":"1"}`, "needs phoneNumberId"},
		{"with an unknown field", `"whatsapp":{"phoneNumberId":"1","accessToken":"` + canary + `","secret":"x"}`, "unknown field"},
		{"not an object", `"whatsapp":"` + canary + `"`, "must be a JSON object"},
		{"no rate", `"whatsapp":{"phoneNumberId":"1","accessToken":"` + canary + `"},"ratePerSecond":0`, "ratePerSecond"},
		{"a gap without a unit", `"whatsapp":null,"recipientGap":"6"`, "recipientGap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Parse(withFields(c.fields))
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), canary) {
					t.Errorf("got error %v, want one about %q without the secret", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			a := NewRegistry(s).Accounts()[0]
			if a.WhatsApp == nil || a.WhatsApp.AccessToken != canary || a.WhatsApp.PhoneNumberID != "1" {
				t.Errorf("the credentials were not read")
			}
			if printed := fmt.Sprintf("%v %+v %s", a.WhatsApp, a, *a.WhatsApp); strings.Contains(printed, canary) {
				t.Errorf("printing the account prints its token")
			}
		})
	}
	s, err := Parse(withFields(`"ratePerSecond":2.5,"recipientGap":"6s"`))
	if err != nil {
		t.Fatal(err)
	}
	if a := NewRegistry(s).Accounts()[0]; a.RatePerSecond != 2.5 || a.RecipientGap != 6*time.Second {
		t.Errorf("got rate %v and gap %v, want 2.5 and 6s", a.RatePerSecond, a.RecipientGap)
	}
}
