// Package openapitest reads the description of the HTTP API for tests that hold
// it against the code. It knows the part of OpenAPI and JSON Schema that the
// description uses, and nothing it does not know passes unseen.
package openapitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"messagesender/internal/message"
	"messagesender/internal/openapi"
)

// Description is a description that has been read.
type Description struct {
	root object
}

type object = map[string]any

// Read makes the description of a process and reads it.
func Read(audioWord string, maxDelay time.Duration) (*Description, error) {
	document, err := openapi.Document(audioWord, maxDelay)
	if err != nil {
		return nil, err
	}
	d := &Description{}
	return d, json.Unmarshal(document, &d.root)
}

var methods = []string{"get", "post", "put", "delete", "patch"}

// Routes are all operations in the form of ServeMux patterns, sorted:
// "POST /message/sendText/{apiToken}".
func (d *Description) Routes() []string {
	var routes []string
	for path, item := range d.root["paths"].(object) {
		for _, method := range methods {
			if _, ok := item.(object)[method]; ok {
				routes = append(routes, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(routes)
	return routes
}

// operation is the object of a route.
func (d *Description) operation(route string) (object, error) {
	method, path, _ := strings.Cut(route, " ")
	item, ok := d.root["paths"].(object)[path].(object)
	if !ok {
		return nil, fmt.Errorf("the description has no path %s", path)
	}
	operation, ok := item[strings.ToLower(method)].(object)
	if !ok {
		return nil, fmt.Errorf("the description has no %s", route)
	}
	return operation, nil
}

// Code is an error code as it is described.
type Code struct {
	Reason    message.Reason
	Status    int
	Retryable bool // usually
}

// Codes are all error codes.
func (d *Description) Codes() []Code {
	var codes []Code
	for _, each := range d.schema("ErrorCode")["oneOf"].([]any) {
		row := each.(object)
		codes = append(codes, Code{message.Reason(row["const"].(string)), int(row["x-status"].(float64)), row["x-retryable"].(bool)})
	}
	return codes
}

// Statuses are the statuses that a route is described to answer, and of each
// failure the codes it may have; nil: it is not a failure.
func (d *Description) Statuses(route string) (map[int][]message.Reason, error) {
	operation, err := d.operation(route)
	if err != nil {
		return nil, err
	}
	statuses := map[int][]message.Reason{}
	for text, response := range operation["responses"].(object) {
		status, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%s: the status %q is no number", route, text)
		}
		statuses[status] = nil
		for _, part := range list(dig(d.follow(response), "content", "application/json", "schema", "allOf")) {
			for _, code := range list(dig(part, "properties", "error", "properties", "code", "enum")) {
				statuses[status] = append(statuses[status], message.Reason(code.(string)))
			}
		}
	}
	return statuses, nil
}

// Field is one field of a request body.
type Field struct {
	Types    []string // of JSON Schema, sorted, without "null"; empty: anything
	Enum     []string // empty: any value
	Required bool     // absent or null is refused
}

// Fields are the fields of a route's request body by their path, objects
// included. Fields that may only be null belong to another operation and are
// not among them.
func (d *Description) Fields(route string) (map[string]Field, error) {
	schema, err := d.body(route)
	if err != nil {
		return nil, err
	}
	fields := map[string]Field{}
	d.collect(fields, "", schema)
	return fields, nil
}

func (d *Description) collect(fields map[string]Field, prefix string, schema object) {
	required := list(schema["required"])
	properties, _ := schema["properties"].(object)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property := d.follow(properties[name])
		var f Field
		nullable := false
		for _, t := range typesOf(property) {
			if t == "null" {
				nullable = true
			} else {
				f.Types = append(f.Types, t)
			}
		}
		if nullable && f.Types == nil {
			continue
		}
		slices.Sort(f.Types)
		for _, value := range list(property["enum"]) {
			if text, ok := value.(string); ok {
				f.Enum = append(f.Enum, text)
			}
		}
		f.Required = slices.Contains(required, any(name))
		fields[prefix+name] = f
		d.collect(fields, prefix+name+".", property)
	}
}

// body is the schema of a route's JSON request body.
func (d *Description) body(route string) (object, error) {
	operation, err := d.operation(route)
	if err != nil {
		return nil, err
	}
	schema := dig(operation["requestBody"], "content", "application/json", "schema")
	if schema == nil {
		return nil, fmt.Errorf("%s has no JSON body", route)
	}
	return d.follow(schema), nil
}

// Parameter is the schema of a parameter of a route, "header Idempotency-Key".
func (d *Description) Parameter(route, where string) (Schema, error) {
	operation, err := d.operation(route)
	if err != nil {
		return Schema{}, err
	}
	for _, each := range list(operation["parameters"]) {
		p := d.follow(each)
		if fmt.Sprintf("%s %s", p["in"], p["name"]) == where {
			return Schema{d, p["schema"].(object)}, nil
		}
	}
	return Schema{}, fmt.Errorf("%s has no parameter %s", route, where)
}

// Body is the schema of a route's request body.
func (d *Description) Body(route string) (Schema, error) {
	schema, err := d.body(route)
	return Schema{d, schema}, err
}

func (d *Description) schema(name string) object {
	return dig(d.root, "components", "schemas", name).(object)
}

// follow resolves a reference, if v is one.
func (d *Description) follow(v any) object {
	o := v.(object)
	for {
		reference, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		o = dig(d.root, strings.Split(strings.TrimPrefix(reference, "#/"), "/")...).(object)
	}
}

// dig follows names into objects; nil: there is nothing.
func dig(v any, names ...string) any {
	for _, name := range names {
		o, _ := v.(object)
		v = o[name]
	}
	return v
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func typesOf(schema object) []string {
	if one, ok := schema["type"].(string); ok {
		return []string{one}
	}
	var types []string
	for _, t := range list(schema["type"]) {
		types = append(types, t.(string))
	}
	return types
}
