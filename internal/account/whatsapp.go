package account

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"messagesender/internal/setting"
)

// Credentials are what an account sends through WhatsApp with. They are secrets
// that must be held as they are, so they print and log as nothing.
type Credentials struct {
	PhoneNumberID string
	AccessToken   string

	// Both are needed for the webhook; empty: there is none.
	AppSecret   string
	VerifyToken string
}

// String keeps the secrets out of whatever prints the value.
func (Credentials) String() string { return "[credentials]" }

// LogValue keeps them out of logs.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// EnvironmentCredentials reads WHATSAPP_PHONE_NUMBER_ID, WHATSAPP_ACCESS_TOKEN,
// WHATSAPP_APP_SECRET and WHATSAPP_VERIFY_TOKEN, the last three also by _FILE;
// nil: none of the first two is set.
func EnvironmentCredentials(getenv func(string) string) (*Credentials, error) {
	c := Credentials{PhoneNumberID: getenv("WHATSAPP_PHONE_NUMBER_ID")}
	for name, value := range map[string]*string{
		"WHATSAPP_ACCESS_TOKEN": &c.AccessToken, "WHATSAPP_APP_SECRET": &c.AppSecret, "WHATSAPP_VERIFY_TOKEN": &c.VerifyToken,
	} {
		var err error
		if *value, err = setting.Secret(getenv, name); err != nil {
			return nil, err
		}
	}
	switch {
	case c.PhoneNumberID == "" && c.AccessToken == "":
		return nil, nil
	case c.PhoneNumberID == "" || c.AccessToken == "":
		return nil, fmt.Errorf("WHATSAPP_PHONE_NUMBER_ID and WHATSAPP_ACCESS_TOKEN go together; only one of them is set")
	}
	return &c, nil
}

// parseCredentials reads the member "whatsapp" of an account; nil: there is none.
func parseCredentials(account fields) (*Credentials, error) {
	raw, given := account["whatsapp"]
	if !given || string(raw) == "null" {
		return nil, nil
	}
	f, err := parseFields(json.RawMessage(raw))
	if err != nil {
		return nil, fmt.Errorf("whatsapp: %w", err)
	}
	if err := f.only("phoneNumberId", "accessToken", "accessTokenFile", "appSecret", "appSecretFile", "verifyToken", "verifyTokenFile"); err != nil {
		return nil, fmt.Errorf("whatsapp: %w", err)
	}
	var c Credentials
	if c.PhoneNumberID, _, err = f.text("phoneNumberId"); err != nil {
		return nil, fmt.Errorf("whatsapp: %w", err)
	}
	for name, value := range map[string]*string{"accessToken": &c.AccessToken, "appSecret": &c.AppSecret, "verifyToken": &c.VerifyToken} {
		if *value, err = f.secret(name); err != nil {
			return nil, fmt.Errorf("whatsapp: %w", err)
		}
	}
	if c.PhoneNumberID == "" || c.AccessToken == "" {
		return nil, fmt.Errorf("whatsapp needs phoneNumberId and accessToken or accessTokenFile")
	}
	return &c, nil
}

// secret reads a secret that stands in the file itself or in one it names.
func (f fields) secret(name string) (string, error) {
	value, given, err := f.text(name)
	if err != nil {
		return "", err
	}
	path, named, err := f.text(name + "File")
	switch {
	case err != nil:
		return "", err
	case given && named:
		return "", fmt.Errorf("%s and %sFile are both given", name, name)
	case !named:
		return value, nil
	}
	if value, err = setting.SecretFile(path); err != nil {
		return "", fmt.Errorf("%sFile: %w", name, err)
	}
	return value, nil
}
