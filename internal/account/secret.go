package account

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// MinSecret is the least length of a key or a token, in characters.
const MinSecret = 16

// generatedLength is the length of a generated secret, in characters of 5 bits each.
const generatedLength = 32

// digestPrefix begins every digest in a file, so that a secret put there by
// mistake is told from one, and another digest can be added one day.
const digestPrefix = "sha256:"

var (
	// A name is a path segment (contract 4.1, /webhook/whatsapp/{account}).
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	// Contract 4.1: a token is a path segment that needs no escaping.
	tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	// RFC 9110 section 5.5: a header value loses the space around it, and only
	// its visible ASCII and the space within mean the same to every client.
	keyForm = regexp.MustCompile(`^[!-~]([ -~]*[!-~])?$`)
)

var errName = errors.New("name must be 1 to 63 characters of A-Z a-z 0-9 _ - and begin with a letter or digit")

// FromSecrets makes a Set of one account with the process's default sender. key
// and token have at least MinSecret characters; token consists of A-Z a-z 0-9 _
// and -, key of visible ASCII, with spaces allowed inside. An error repeats none
// of the arguments.
func FromSecrets(name, key, token string) (Set, error) {
	if !nameForm.MatchString(name) {
		return Set{}, errName
	}
	if err := checkSecrets(key, token); err != nil {
		return Set{}, err
	}
	var s Set
	err := s.add(Account{Name: name}, sum(token), []accessKey{{sum(key), forever}})
	return s, err
}

func checkSecrets(key, token string) error {
	switch {
	case len(key) < MinSecret:
		return fmt.Errorf("the key must have at least %d characters", MinSecret)
	case !keyForm.MatchString(key):
		return errors.New("the key must be visible ASCII without white space at its ends")
	case len(token) < MinSecret:
		return fmt.Errorf("the token must have at least %d characters", MinSecret)
	case !tokenForm.MatchString(token):
		return errors.New("the token must consist of A-Z a-z 0-9 _ -")
	}
	return nil
}

// Generate makes a fresh key and token of 160 random bits each: letters and
// digits only, so that they can be selected with a double click and never look
// like a flag.
func Generate() (key, token string) {
	return generateOne(), generateOne()
}

func generateOne() string { return (rand.Text() + rand.Text())[:generatedLength] }

func (d digest) String() string { return digestPrefix + hex.EncodeToString(d[:]) }

var (
	errDigestForm  = errors.New(`must be "` + digestPrefix + `" followed by 64 hex digits; run -new-account to make one`)
	errDigestEmpty = errors.New("is the digest of an empty text; run -new-account to make one")
)

// parseDigest reads what String writes, in either case of the hex digits. The
// digest of an empty text is refused: a request without a key would match it.
func parseDigest(s string) (digest, error) {
	digits, ok := strings.CutPrefix(s, digestPrefix)
	var d digest
	if !ok || len(digits) != hex.EncodedLen(len(d)) {
		return digest{}, errDigestForm
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return digest{}, errDigestForm
	}
	if d == sum("") {
		return digest{}, errDigestEmpty
	}
	return d, nil
}
