package account

import "encoding/json"

// New makes an account for the accounts file: a fresh key and token, to be
// handed to the caller and nowhere kept, and the entry that lets them in: an
// indented JSON object without a line feed at its end, to be put into the
// "accounts" array. The key has no end and the sender is the process's default.
func New(name string) (key, token string, entry []byte, err error) {
	if !nameForm.MatchString(name) {
		return "", "", nil, errName
	}
	key, token = Generate()
	type entryKey struct {
		Key string `json:"key"`
	}
	entry, err = json.MarshalIndent(struct {
		Name  string     `json:"name"`
		Token string     `json:"token"`
		Keys  []entryKey `json:"keys"`
	}{name, sum(token).String(), []entryKey{{sum(key).String()}}}, "", "  ")
	return key, token, entry, err
}
