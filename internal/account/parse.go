package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// MaxFile is the size limit of an accounts file, in bytes.
	MaxFile = 4 << 20
	// MaxAccounts is how many accounts a file may list.
	MaxAccounts = 10_000
)

// Load reads the accounts file at path; see Parse. An error names path.
func Load(path string) (Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return Set{}, fmt.Errorf("accounts file: %w", err)
	}
	defer f.Close()
	// One byte beyond the limit lets Parse see that the file is too large.
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return Set{}, fmt.Errorf("accounts file: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return Set{}, fmt.Errorf("accounts file %s: %w", path, err)
	}
	return s, nil
}

// Parse reads an accounts file (contract 4.4), at most MaxFile bytes of strict
// JSON with 1 to MaxAccounts accounts of 1 to MaxKeys keys:
//
//	{"accounts": [{
//	  "name": "shop",
//	  "token": "sha256:<64 hex digits>",
//	  "keys": [{"key": "sha256:<64 hex digits>", "notAfter": "2027-01-01T00:00:00Z"}],
//	  "sender": "outbox",
//	  "whatsapp": {"phoneNumberId": "…", "accessTokenFile": "/run/secrets/…",
//	               "appSecretFile": "…", "verifyTokenFile": "…"},
//	  "ratePerSecond": 20, "recipientGap": "6s"
//	}]}
//
// A key without notAfter has no end; one with a notAfter in the past is read and
// matches nothing, so that a file does not become invalid by itself. Without
// sender the process's default sends; without whatsapp its credentials are the
// process's; each secret in it may also stand in the file itself (accessToken).
// Without ratePerSecond and recipientGap nothing is paced. null counts as absent.
// Anything else is an error, also a field that is not known.
//
// The error is one line about the first problem found. It names the account and
// the field, and never repeats what could be a secret or a digest.
func Parse(data []byte) (Set, error) {
	file, err := parseDocument(data, MaxFile, "accounts")
	if err != nil {
		return Set{}, err
	}
	list, err := file.list("accounts")
	if err != nil {
		return Set{}, err
	}
	switch {
	case len(list) == 0:
		return Set{}, errors.New("accounts must list at least one account")
	case len(list) > MaxAccounts:
		return Set{}, fmt.Errorf("accounts must list at most %d accounts", MaxAccounts)
	}
	var s Set
	for i, raw := range list {
		if err := s.parseAccount(raw); err != nil {
			return Set{}, fmt.Errorf("%s: %w", label(i, raw), err)
		}
	}
	return s, nil
}

// label names the account at index i for an error: by its name where it has a
// proper one, otherwise by its place in the file.
func label(i int, raw json.RawMessage) string {
	if f, err := parseFields(raw); err == nil {
		if name, _, err := f.text("name"); err == nil && nameForm.MatchString(name) {
			return fmt.Sprintf("account %q", name)
		}
	}
	return fmt.Sprintf("accounts[%d]", i)
}

// parseAccount adds the account that raw describes.
func (s *Set) parseAccount(raw json.RawMessage) error {
	f, err := parseFields(raw)
	if err != nil {
		return err
	}
	if err := f.only("name", "token", "keys", "sender", "whatsapp", "ratePerSecond", "recipientGap"); err != nil {
		return err
	}
	var a Account
	if a.Name, _, err = f.text("name"); err != nil {
		return err
	}
	if !nameForm.MatchString(a.Name) {
		return errName
	}
	token, err := f.digest("token")
	if err != nil {
		return err
	}
	keys, err := parseKeys(f)
	if err != nil {
		return err
	}
	var given bool
	if a.Sender, given, err = f.text("sender"); err != nil {
		return err
	}
	if given && a.Sender != Outbox && a.Sender != WhatsApp {
		return fmt.Errorf("sender must be %q or %q", Outbox, WhatsApp)
	}
	if a.WhatsApp, err = parseCredentials(f); err != nil {
		return err
	}
	if err := parsePace(f, &a); err != nil {
		return err
	}
	return s.add(a, token, keys)
}

// Bounds of the pace. Slower than a message an hour, or a gap longer than a
// day, is a mistake in the unit.
const (
	minRate = 1.0 / 3600
	maxRate = 10_000
	maxGap  = 24 * time.Hour
)

func parsePace(f fields, a *Account) error {
	if raw, given := f["ratePerSecond"]; given {
		if json.Unmarshal(raw, &a.RatePerSecond) != nil || a.RatePerSecond < minRate || a.RatePerSecond > maxRate {
			return fmt.Errorf("ratePerSecond must be a number from 1/3600 to %d", maxRate)
		}
	}
	text, given, err := f.text("recipientGap")
	if err != nil {
		return err
	}
	if given {
		a.RecipientGap, err = time.ParseDuration(text)
		if err != nil || a.RecipientGap <= 0 || a.RecipientGap > maxGap {
			return fmt.Errorf("recipientGap must be a duration such as \"6s\", at most %v", maxGap)
		}
	}
	return nil
}

func parseKeys(account fields) ([]accessKey, error) {
	list, err := account.list("keys")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) > MaxKeys {
		return nil, fmt.Errorf("keys must list 1 to %d keys", MaxKeys)
	}
	keys := make([]accessKey, len(list))
	for i, raw := range list {
		if keys[i], err = parseKey(raw); err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
	}
	return keys, nil
}

func parseKey(raw json.RawMessage) (accessKey, error) {
	f, err := parseFields(raw)
	if err != nil {
		return accessKey{}, err
	}
	if err := f.only("key", "notAfter"); err != nil {
		return accessKey{}, err
	}
	k := accessKey{until: forever}
	if k.digest, err = f.digest("key"); err != nil {
		return accessKey{}, err
	}
	notAfter, given, err := f.text("notAfter")
	if err != nil {
		return accessKey{}, err
	}
	// UnmarshalText is strict where time.Parse lets some near misses pass.
	if given && k.until.UnmarshalText([]byte(notAfter)) != nil {
		return accessKey{}, errors.New("notAfter must be a time like 2027-01-01T00:00:00Z")
	}
	return k, nil
}
