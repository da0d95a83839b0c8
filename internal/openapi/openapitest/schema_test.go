package openapitest

import (
	"encoding/json"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		valid        []string
		invalid      []string
	}{
		{"type", `{"type":["integer","null"]}`, []string{`1`, `-1`, `1.0`, `1e3`, `null`}, []string{`1.5`, `"1"`, `true`, `[]`, `{}`}},
		{"number", `{"type":"number"}`, []string{`1.5`, `1`}, []string{`"1"`}},
		{"bounds", `{"minimum":0,"maximum":10}`, []string{`0`, `10`, `-0`, `"a"`}, []string{`-0.1`, `10.1`}},
		{"lengths in characters", `{"minLength":1,"maxLength":2}`, []string{`"é"`, `"éé"`, `1`}, []string{`""`, `"ééé"`}},
		{"pattern", `{"pattern":"^[\\u00e0-\\u00ff]+$"}`, []string{`"é"`}, []string{`"e"`, `"ée"`}},
		{"const and enum", `{"anyOf":[{"const":"a"},{"enum":[null,"b"]}]}`, []string{`"a"`, `"b"`, `null`}, []string{`"c"`, `1`}},
		{"object", `{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":{"type":"string"},"b":{"not":{"enum":[1]}}}}`,
			[]string{`{"a":""}`, `{"a":"","b":2}`}, []string{`{}`, `{"a":1}`, `{"a":"","c":1}`, `{"a":"","b":1}`, `[]`}},
		{"condition", `{"if":{"required":["k"],"properties":{"k":{"const":"x"}}},"then":{"required":["v"]}}`,
			[]string{`{}`, `{"k":"y"}`, `{"k":"x","v":1}`}, []string{`{"k":"x"}`}},
		{"all and one", `{"allOf":[{"minimum":1},{"maximum":3}],"oneOf":[{"maximum":2},{"minimum":2}]}`, []string{`1`, `3`}, []string{`0`, `4`, `2`}},
		{"reference", `{"$ref":"#/components/schemas/S"}`, []string{`"s"`}, []string{`1`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Schema
			if err := json.Unmarshal([]byte(c.schema), &s.schema); err != nil {
				t.Fatal(err)
			}
			s.d = &Description{object{"components": object{"schemas": object{"S": object{"type": "string"}}}}}
			for _, text := range c.valid {
				if err := s.Check([]byte(text)); err != nil {
					t.Errorf("%s: got %v, want it to conform", text, err)
				}
			}
			for _, text := range c.invalid {
				if s.Check([]byte(text)) == nil {
					t.Errorf("%s: got no error, want one", text)
				}
			}
		})
	}
}

func TestAnUnknownKeywordIsNotIgnored(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("got no panic, want one")
		}
	}()
	_ = Schema{&Description{}, object{"multipleOf": 2.0}}.Check([]byte("1"))
}
