package account

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"messagesender/internal/strictjson"
)

// fields are the members of a JSON object by their exact names, without those
// that are null. They are read one by one and not into a struct, because
// encoding/json takes "Name" for "name" and repeats values in its errors.
type fields map[string]json.RawMessage

// parseDocument reads a file of at most limit bytes that is one strict JSON
// object with no fields but the known ones.
func parseDocument(data []byte, limit int, known ...string) (fields, error) {
	if len(data) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	_, err := strictjson.Object(bytes.NewReader(data), strictjson.Options{MaxRest: limit, MaxBody: int64(limit)})
	if syntax, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		// The text quotes a duplicate key, and what stands in the place of a
		// key may be a secret. The position says enough.
		msg, _, _ := strings.Cut(syntax.Msg, ` "`)
		line, column := position(data, syntax.Offset)
		return nil, fmt.Errorf("line %d, column %d: %s", line, column, msg)
	}
	if err != nil {
		return nil, err
	}
	f, err := parseFields(data)
	if err != nil {
		return nil, err
	}
	return f, f.only(known...)
}

// position turns an offset into a line and a column in bytes, both from 1.
func position(data []byte, offset int64) (line, column int) {
	before := data[:offset]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// parseFields reads an object out of what parseDocument found to be strict.
func parseFields(raw json.RawMessage) (fields, error) {
	var f fields
	if err := json.Unmarshal(raw, &f); err != nil || f == nil {
		return nil, errors.New("must be a JSON object")
	}
	maps.DeleteFunc(f, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	return f, nil
}

// only checks that there are no fields but the known ones.
func (f fields) only(known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if slices.Contains(known, name) {
			continue
		}
		shown := ""
		if len(name) < MinSecret { // then it is no secret in the place of a name
			shown = fmt.Sprintf(" %q", name)
		}
		return fmt.Errorf("unknown field%s; the fields here are: %s", shown, strings.Join(known, ", "))
	}
	return nil
}

// text returns a string and whether it is there.
func (f fields) text(name string) (text string, given bool, err error) {
	raw, given := f[name]
	if !given {
		return "", false, nil
	}
	if json.Unmarshal(raw, &text) != nil {
		return "", false, errors.New(name + " must be a string")
	}
	return text, true, nil
}

// list returns the elements of an array; none if it is not there.
func (f fields) list(name string) ([]json.RawMessage, error) {
	raw, given := f[name]
	if !given {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New(name + " must be an array")
	}
	return list, nil
}

// digest returns a digest that has to be there.
func (f fields) digest(name string) (digest, error) {
	text, _, err := f.text(name)
	if err != nil {
		return digest{}, err
	}
	d, err := parseDigest(text)
	if err != nil {
		return digest{}, fmt.Errorf("%s %w", name, err)
	}
	return d, nil
}
