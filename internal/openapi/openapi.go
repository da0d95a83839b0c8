// Package openapi is the description of the HTTP API, OpenAPI 3.1
// (https://spec.openapis.org/oas/v3.1.0). It is written by hand, in
// openapi.json, and held against the code by tests, in both directions.
//
// Beside what the specification has, each error code says in x-status with which
// HTTP status it comes and in x-retryable what its retryable usually is.
package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"
)

//go:embed openapi.json
var template []byte

// audioPath is that of the voice message in the template. Its word is a setting.
const audioPath = "/message/sendWhatsAppAudio/{apiToken}"

// delaySchemas are those whose maximum is a setting.
var delaySchemas = []string{"Delay", "WholeDelay"}

// Document is the description of a process that takes voice messages at
// /message/send<audioWord>Audio and holds messages for maxDelay at most. It is
// JSON; its server URL is relative, so that it is right behind a path prefix too.
func Document(audioWord string, maxDelay time.Duration) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(template))
	decoder.UseNumber()
	var root object
	if err := decoder.Decode(&root); err != nil {
		return nil, fmt.Errorf("openapi.json: %w", err)
	}
	paths, err := root.at("paths")
	if err != nil {
		return nil, err
	}
	audio, err := paths.at(audioPath)
	if err != nil {
		return nil, err
	}
	delete(paths, audioPath)
	paths["/message/send"+audioWord+"Audio/{apiToken}"] = map[string]any(audio)

	limit := float64(maxDelay) / float64(time.Millisecond)
	for _, name := range delaySchemas {
		schema, err := root.at("components", "schemas", name)
		if err != nil {
			return nil, err
		}
		schema["maximum"] = limit
		schema["examples"] = []any{min(limit, exampleDelay)}
	}
	for name := range paths {
		if err := limitExamples(paths, name, limit); err != nil {
			return nil, err
		}
	}
	return json.MarshalIndent(root, "", " ")
}

// exampleDelay is the delay of the schemas' examples, in milliseconds.
const exampleDelay = 1200

// limitExamples keeps the delays of the request examples within what is taken,
// because an example is there to be tried.
func limitExamples(paths object, path string, limit float64) error {
	examples, err := paths.at(path, "post", "requestBody", "content", "application/json", "examples")
	if err != nil {
		return nil // no message is posted there
	}
	for name := range examples {
		options, err := examples.at(name, "value", "options")
		if err != nil {
			continue
		}
		delay, ok := options["delay"].(json.Number)
		if !ok {
			continue
		}
		given, err := delay.Float64()
		if err != nil {
			return err
		}
		options["delay"] = min(given, limit)
	}
	return nil
}

// object is a JSON object of the description.
type object map[string]any

// at follows names into o. An error means that the template has changed and this
// package has not.
func (o object) at(names ...string) (object, error) {
	for _, name := range names {
		inner, ok := o[name].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("openapi.json: there is no object %q", name)
		}
		o = inner
	}
	return o, nil
}
