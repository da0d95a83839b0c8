package account

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// canary stands for a secret in the wrong place. No name can hold it, so no
// error may repeat it, wherever it is.
const canary = "canary~secret~0123456789a"

// form fills placeholders in: @T and @K by a good token and a good list of keys,
// $1 to $9 by digests, and CANARY.
func form(text string) string {
	pairs := []string{"CANARY", canary, `@T`, `"token": "$1"`, `@K`, `"keys": [{"key": "$2"}]`}
	text = strings.NewReplacer(pairs...).Replace(text)
	for i := 1; i <= 9; i++ {
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i), sum(fmt.Sprintf("secret %d", i)).String())
	}
	return text
}

var badFiles = map[string]struct{ file, want string }{
	"empty file":           {``, `line 1, column 1: the body is empty`},
	"not an object":        {`["CANARY"]`, `line 1, column 1: the body must be a JSON object, not an array`},
	"broken JSON":          {"{\n \"accounts\": [\n  CANARY]}", `line 3, column 3: expected a value`},
	"trailing data":        {`{"accounts": []} CANARY`, `line 1, column 18: nothing may follow the object`},
	"duplicate key":        {`{"accounts": [], "accounts": []}`, `line 1, column 18: duplicate key`},
	"duplicate secret key": {`{"CANARY": 1, "CANARY": 2}`, `line 1, column 34: duplicate key`},
	"unknown field":        {`{"account": []}`, `unknown field "account"; the fields here are: accounts`},
	"secret as a field":    {`{"accounts": [], "CANARY": 1}`, `unknown field; the fields here are: accounts`},
	"no accounts":          {`{}`, `accounts must list at least one account`},
	"accounts null":        {`{"accounts": null}`, `accounts must list at least one account`},
	"empty accounts":       {`{"accounts": []}`, `accounts must list at least one account`},
	"accounts no array":    {`{"accounts": {"CANARY": 1}}`, `accounts must be an array`},
	"account no object":    {`{"accounts": ["CANARY"]}`, `accounts[0]: must be a JSON object`},
	"account null":         {`{"accounts": [null]}`, `accounts[0]: must be a JSON object`},

	"no name":             {`{"accounts": [{@T, @K}]}`, `accounts[0]: ` + errName.Error()},
	"secret as name":      {`{"accounts": [{"name": "CANARY", @T, @K}]}`, `accounts[0]: ` + errName.Error()},
	"name no string":      {`{"accounts": [{"name": 1234567890.123456, @T, @K}]}`, `accounts[0]: name must be a string`},
	"name in other case":  {`{"accounts": [{"Name": "shop", @T, @K}]}`, `accounts[0]: unknown field "Name"; the fields here are: name, token, keys, sender, whatsapp, ratePerSecond, recipientGap`},
	"field of an account": {`{"accounts": [{"name": "shop", @T, @K, "pace": 1}]}`, `account "shop": unknown field "pace"; the fields here are: name, token, keys, sender, whatsapp, ratePerSecond, recipientGap`},
	"secret for a field":  {`{"accounts": [{"name": "shop", @T, @K, "CANARY": 1}]}`, `account "shop": unknown field; the fields here are: name, token, keys, sender, whatsapp, ratePerSecond, recipientGap`},

	"no token":         {`{"accounts": [{"name": "shop", @K}]}`, `account "shop": token ` + errDigestForm.Error()},
	"plain token":      {`{"accounts": [{"name": "shop", "token": "CANARY", @K}]}`, `account "shop": token ` + errDigestForm.Error()},
	"token a number":   {`{"accounts": [{"name": "shop", "token": 1234567890.123456, @K}]}`, `account "shop": token must be a string`},
	"other digest":     {`{"accounts": [{"name": "shop", "token": "sha512:CANARY", @K}]}`, `account "shop": token ` + errDigestForm.Error()},
	"digest too short": {`{"accounts": [{"name": "shop", "token": "sha256:00", @K}]}`, `account "shop": token ` + errDigestForm.Error()},
	"digest too long":  {`{"accounts": [{"name": "shop", "token": "$100", @K}]}`, `account "shop": token ` + errDigestForm.Error()},
	"digest not hex":   {`{"accounts": [{"name": "shop", "token": "sha256:` + strings.Repeat("g", 64) + `", @K}]}`, `account "shop": token ` + errDigestForm.Error()},
	"token of nothing": {`{"accounts": [{"name": "shop", "token": "` + sum("").String() + `", @K}]}`, `account "shop": token ` + errDigestEmpty.Error()},

	"no keys":              {`{"accounts": [{"name": "shop", @T}]}`, `account "shop": keys must list 1 to 8 keys`},
	"empty keys":           {`{"accounts": [{"name": "shop", @T, "keys": []}]}`, `account "shop": keys must list 1 to 8 keys`},
	"too many keys":        {`{"accounts": [{"name": "shop", @T, "keys": [1,2,3,4,5,6,7,8,9]}]}`, `account "shop": keys must list 1 to 8 keys`},
	"keys a string":        {`{"accounts": [{"name": "shop", @T, "keys": "CANARY"}]}`, `account "shop": keys must be an array`},
	"key no object":        {`{"accounts": [{"name": "shop", @T, "keys": ["CANARY"]}]}`, `account "shop": keys[0]: must be a JSON object`},
	"plain key":            {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2"}, {"key": "CANARY"}]}]}`, `account "shop": keys[1]: key ` + errDigestForm.Error()},
	"key of nothing":       {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "` + sum("").String() + `"}]}]}`, `account "shop": keys[0]: key ` + errDigestEmpty.Error()},
	"field of a key":       {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notafter": "2027-01-01T00:00:00Z"}]}]}`, `account "shop": keys[0]: unknown field "notafter"; the fields here are: key, notAfter`},
	"secret for a field 2": {`{"accounts": [{"name": "shop", @T, "keys": [{"CANARY": "2027-01-01T00:00:00Z"}]}]}`, `account "shop": keys[0]: unknown field; the fields here are: key, notAfter`},
	"notAfter a date":      {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notAfter": "2027-01-01"}]}]}`, `account "shop": keys[0]: notAfter must be a time like 2027-01-01T00:00:00Z`},
	"notAfter empty":       {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notAfter": ""}]}]}`, `account "shop": keys[0]: notAfter must be a time like 2027-01-01T00:00:00Z`},
	"notAfter a secret":    {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notAfter": "CANARY"}]}]}`, `account "shop": keys[0]: notAfter must be a time like 2027-01-01T00:00:00Z`},
	"notAfter a number":    {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notAfter": 1798761600}]}]}`, `account "shop": keys[0]: notAfter must be a string`},

	"unknown sender":   {`{"accounts": [{"name": "shop", @T, @K, "sender": "CANARY"}]}`, `account "shop": sender must be "outbox" or "whatsapp"`},
	"empty sender":     {`{"accounts": [{"name": "shop", @T, @K, "sender": ""}]}`, `account "shop": sender must be "outbox" or "whatsapp"`},
	"sender no string": {`{"accounts": [{"name": "shop", @T, @K, "sender": ["CANARY"]}]}`, `account "shop": sender must be a string`},

	"name twice":       {`{"accounts": [{"name": "shop", @T, @K}, {"name": "shop", "token": "$3", "keys": [{"key": "$4"}]}]}`, `account "shop": name is used twice`},
	"token twice":      {`{"accounts": [{"name": "shop", @T, @K}, {"name": "test", @T, "keys": [{"key": "$4"}]}]}`, `account "test": token is also that of account "shop"`},
	"key of two":       {`{"accounts": [{"name": "shop", @T, @K}, {"name": "test", "token": "$3", "keys": [{"key": "$4"}, {"key": "$2"}]}]}`, `account "test": keys[1]: key is also a key of account "shop"`},
	"key twice in one": {`{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2"}, {"key": "$2", "notAfter": "2027-01-01T00:00:00Z"}]}]}`, `account "shop": keys[1]: key is also a key of account "shop"`},
}

func TestParseRefuses(t *testing.T) {
	for name, c := range badFiles {
		file := form(c.file)
		s, err := Parse([]byte(file))
		if err == nil {
			t.Errorf("%s: got no error, want %q", name, c.want)
			continue
		}
		if err.Error() != c.want {
			t.Errorf("%s: got error %q, want %q", name, err, c.want)
		}
		if len(s.accounts)+len(s.byToken)+len(s.byKey) != 0 {
			t.Errorf("%s: got a Set of %d accounts with the error, want the zero Set", name, len(s.accounts))
		}
		checkSilent(t, file, err)
	}
}

// checkSilent checks that an error is one line that repeats neither the canary
// nor a digest nor a long number.
func checkSilent(t *testing.T, file string, err error) {
	t.Helper()
	text := err.Error()
	if strings.Contains(text, canary) || strings.Contains(text, "1234567890.123456") || strings.Contains(text, "\n") {
		t.Errorf("error of %q is not one line without secrets: %q", file, text)
	}
	for i := 1; i <= 9; i++ {
		start := sum(fmt.Sprintf("secret %d", i)).String()[len("sha256"):][:9] // with the colon, which no name can hold
		if strings.Contains(text, start) {
			t.Errorf("error of %q repeats a digest: %q", file, text)
		}
	}
}

var goodFiles = map[string]string{
	"least":            `{"accounts": [{"name": "shop", @T, @K}]}`,
	"everything":       `{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notAfter": "2027-01-01T00:00:00+02:00"}, {"key": "$3"}], "sender": "whatsapp"}]}`,
	"null is absent":   `{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notAfter": null}], "sender": null}]}`,
	"all keys are old": `{"accounts": [{"name": "shop", @T, "keys": [{"key": "$2", "notAfter": "1999-01-01T00:00:00.5Z"}]}]}`,
	"two accounts":     `{"accounts": [{"name": "shop", @T, @K}, {"name": "Shop", "token": "$3", "keys": [{"key": "$4"}], "sender": "outbox"}]}`,
	"escaped":          `{"acc\u006funts": [{"n\u0061me": "sh\u006fp", @T, @K}]}`,
	"most keys":        `{"accounts": [{"name": "shop", @T, "keys": [{"key":"$2"},{"key":"$3"},{"key":"$4"},{"key":"$5"},{"key":"$6"},{"key":"$7"},{"key":"$8"},{"key":"$9"}]}]}`,
}

func TestParseAccepts(t *testing.T) {
	for name, file := range goodFiles {
		s, err := Parse([]byte(form(file)))
		if err != nil {
			t.Errorf("%s: got error %q, want none", name, err)
			continue
		}
		a, ok := NewRegistry(s).Authenticate("secret 1", "secret 2")
		if want := name != "all keys are old"; ok != want || (ok && a.Name != "shop") {
			t.Errorf("%s: Authenticate got %+v, %t, want %t", name, a, ok, want)
		}
		checkConsistent(t, s)
	}
}

func TestParseReadsHexInEitherCase(t *testing.T) {
	upper := "sha256:" + strings.ToUpper(strings.TrimPrefix(sum("secret 1").String(), "sha256:"))
	s := mustParse(t, strings.ReplaceAll(form(goodFiles["least"]), sum("secret 1").String(), upper))
	if _, ok := NewRegistry(s).Authenticate("secret 1", "secret 2"); !ok {
		t.Error("a digest in capitals does not match its secret")
	}
}

// manyAccounts is a file of n accounts in the shortest form there is.
func manyAccounts(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"accounts":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"%d","token":"%s","keys":[{"key":"%s"}]}`, i, sum(fmt.Sprint("token", i)), sum(fmt.Sprint("key", i)))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func TestParseLimits(t *testing.T) {
	full := manyAccounts(5_000)
	full = append(full, strings.Repeat(" ", MaxFile-len(full))...)
	s, err := Parse(full)
	if err != nil || len(s.accounts) != 5_000 {
		t.Errorf("file of exactly the limit: got %d accounts, error %v, want 5000 and none", len(s.accounts), err)
	}
	_, err = Parse(append(full, ' '))
	if want := "larger than 4194304 bytes"; err == nil || err.Error() != want {
		t.Errorf("file of one byte more: got error %v, want %q", err, want)
	}
	_, err = Parse([]byte(`{"accounts":[0` + strings.Repeat(",0", MaxAccounts) + `]}`))
	if want := "accounts must list at most 10000 accounts"; err == nil || err.Error() != want {
		t.Errorf("one account too many: got error %v, want %q", err, want)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s, err := Load(write("good.json", twoAccounts()))
	if err != nil || len(s.accounts) != 2 {
		t.Errorf("good file: got %d accounts, error %v, want 2 and none", len(s.accounts), err)
	}
	bad := write("bad.json", form(`{"accounts": [{"name": "shop", "token": "CANARY", @K}]}`))
	large := write("large.json", strings.Repeat(" ", MaxFile+1))
	missing := filepath.Join(dir, "missing.json")
	for path, want := range map[string]string{
		bad:     "accounts file " + bad + `: account "shop": token ` + errDigestForm.Error(),
		large:   "accounts file " + large + ": larger than 4194304 bytes",
		missing: "accounts file: open " + missing + ": no such file or directory",
		dir:     "accounts file: read " + dir + ": is a directory",
	} {
		if _, err := Load(path); err == nil || err.Error() != want {
			t.Errorf("Load: got error %v, want %q", err, want)
		}
	}
}

// encode writes what s holds as an accounts file.
func encode(t *testing.T, s Set) []byte {
	t.Helper()
	tokens := make(map[string]digest)
	for d, e := range s.byToken {
		tokens[e.account.Name] = d
	}
	type object map[string]any
	var accounts []object
	for _, a := range s.accounts {
		token, ok := tokens[a.Name]
		if !ok {
			t.Fatalf("account %q has no token", a.Name)
		}
		var keys []object
		for _, k := range s.byToken[token].keys {
			if k == (accessKey{}) {
				continue
			}
			key := object{"key": k.digest.String()}
			if !k.until.Equal(forever) {
				key["notAfter"] = k.until
			}
			keys = append(keys, key)
		}
		account := object{"name": a.Name, "token": token.String(), "keys": keys}
		if a.Sender != "" {
			account["sender"] = a.Sender
		}
		accounts = append(accounts, account)
	}
	file, err := json.Marshal(object{"accounts": accounts})
	if err != nil {
		t.Fatalf("encoding what was parsed: %v", err)
	}
	return file
}

// checkConsistent checks what holds for every Set that Parse makes.
func checkConsistent(t *testing.T, s Set) {
	t.Helper()
	if n := len(s.accounts); n == 0 || len(s.byToken) != n || len(s.names) != n {
		t.Errorf("got %d accounts, %d tokens, %d names, want as many of each", n, len(s.byToken), len(s.names))
	}
	keys := 0
	for _, e := range s.byToken {
		for _, k := range e.keys {
			if k == (accessKey{}) {
				continue
			}
			keys++
			if s.byKey[k.digest] != e {
				t.Errorf("a key of %q leads elsewhere", e.account.Name)
			}
			if !e.opens(k.digest, k.until) {
				t.Errorf("a key of %q does not open it", e.account.Name)
			}
		}
	}
	if len(s.byKey) != keys {
		t.Errorf("%d keys lead to an account, want %d", len(s.byKey), keys)
	}
	if _, ok := NewRegistry(s).Authenticate("", ""); ok {
		t.Error("no token and no key open an account")
	}
	if _, ok := NewRegistry(s).ByKey(""); ok {
		t.Error("no key opens an account")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(twoAccounts()))
	for _, file := range goodFiles {
		f.Add([]byte(form(file)))
	}
	for _, c := range badFiles {
		f.Add([]byte(form(c.file)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			checkSilent(t, string(data), err)
			return
		}
		checkConsistent(t, s)
		again, err := Parse(encode(t, s))
		if err != nil {
			t.Fatalf("encoded again: got error %q, want none", err)
		}
		if got, want := string(encode(t, again)), string(encode(t, s)); got != want {
			t.Errorf("encoded again: got %s, want %s", got, want)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	file := manyAccounts(5_000)
	b.ReportAllocs()
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := Parse(file); err != nil {
			b.Fatal(err)
		}
	}
}
