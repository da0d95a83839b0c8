package openapitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Schema is a JSON Schema of the description.
type Schema struct {
	d      *Description
	schema object
}

// Check tells why JSON text does not conform to the schema; nil: it does. A
// keyword that is not known here panics: it would be a rule that nobody checks.
//
// Numbers are compared as float64, so what differs from a limit by less than
// that can tell is not noticed.
func (s Schema) Check(text []byte) error {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	return s.d.check(s.schema, value, "")
}

// annotations say nothing of what is valid.
var annotations = []string{"description", "title", "examples", "contentEncoding", "format"}

func (d *Description) check(schema object, value any, path string) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s "+format, append([]any{"the value at /" + path}, args...)...)
	}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		rule := schema[keyword]
		var err error
		switch keyword {
		case "$ref":
			err = d.check(d.follow(schema), value, path)
		case "type":
			if !slices.ContainsFunc(typesOf(schema), func(t string) bool { return isType(value, t) }) {
				err = wrong("is not %v", typesOf(schema))
			}
		case "const":
			if !reflect.DeepEqual(value, rule) {
				err = wrong("is not %v", rule)
			}
		case "enum":
			if !slices.ContainsFunc(list(rule), func(v any) bool { return reflect.DeepEqual(value, v) }) {
				err = wrong("is none of %v", rule)
			}
		case "minimum":
			if n, ok := value.(float64); ok && n < rule.(float64) {
				err = wrong("is less than %v", rule)
			}
		case "maximum":
			if n, ok := value.(float64); ok && n > rule.(float64) {
				err = wrong("is more than %v", rule)
			}
		case "minLength":
			if s, ok := value.(string); ok && utf8.RuneCountInString(s) < int(rule.(float64)) {
				err = wrong("is shorter than %v", rule)
			}
		case "maxLength":
			if s, ok := value.(string); ok && utf8.RuneCountInString(s) > int(rule.(float64)) {
				err = wrong("is longer than %v", rule)
			}
		case "pattern":
			if s, ok := value.(string); ok && !compile(rule.(string)).MatchString(s) {
				err = wrong("does not match %v", rule)
			}
		case "required":
			if o, ok := value.(object); ok {
				for _, name := range list(rule) {
					if _, there := o[name.(string)]; !there {
						err = wrong("has no %v", name)
					}
				}
			}
		case "properties":
			if o, ok := value.(object); ok {
				for name, sub := range rule.(object) {
					if member, there := o[name]; there {
						err = errors.Join(err, d.check(sub.(object), member, path+name+"/"))
					}
				}
			}
		case "additionalProperties":
			known, _ := schema["properties"].(object)
			if o, ok := value.(object); ok && rule == false {
				for name := range o {
					if _, there := known[name]; !there {
						err = wrong("has a member that is not described")
					}
				}
			} else if rule != false {
				panic("additionalProperties is understood only as false")
			}
		case "allOf":
			for _, sub := range list(rule) {
				err = errors.Join(err, d.check(sub.(object), value, path))
			}
		case "anyOf":
			if d.count(list(rule), value, path) == 0 {
				err = wrong("is none of %d forms", len(list(rule)))
			}
		case "oneOf":
			if d.count(list(rule), value, path) != 1 {
				err = wrong("is not exactly one of %d forms", len(list(rule)))
			}
		case "not":
			if d.check(rule.(object), value, path) == nil {
				err = wrong("is what it must not be")
			}
		case "if":
			if then, ok := schema["then"].(object); ok && d.check(rule.(object), value, path) == nil {
				err = d.check(then, value, path)
			}
		case "then": // done with if
		default:
			if !slices.Contains(annotations, keyword) && !strings.HasPrefix(keyword, "x-") {
				panic("the description uses the keyword " + keyword + ", which is not checked")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// count is the number of schemas that value conforms to.
func (d *Description) count(schemas []any, value any, path string) int {
	n := 0
	for _, sub := range schemas {
		if d.check(sub.(object), value, path) == nil {
			n++
		}
	}
	return n
}

func isType(value any, t string) bool {
	switch v := value.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case float64:
		return t == "number" || t == "integer" && v == math.Trunc(v)
	case object:
		return t == "object"
	default:
		return t == "array"
	}
}

var unicodeEscape = regexp.MustCompile(`\\u([0-9a-fA-F]{4})`)

// compile makes a Go expression of a pattern, which is ECMAScript's: of what
// patterns here use, only \uXXXX is written otherwise.
func compile(pattern string) *regexp.Regexp {
	return regexp.MustCompile(unicodeEscape.ReplaceAllString(pattern, `\x{$1}`))
}
