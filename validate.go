package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

// field is one row of the table of contract 4.2.
type field struct {
	path string
	kind jsonKind
	ops  []message.Operation // the operations it belongs to
}

// jsonKind is what a value must be, in the words of an error.
type jsonKind string

const (
	aString   jsonKind = "a string"
	aNumber   jsonKind = "a number"
	aBoolean  jsonKind = "a boolean"
	anObject  jsonKind = "an object"
	anArray   jsonKind = "an array"
	whatever  jsonKind = "anything"
	mediaPath          = "mediaMessage.media"
	audioPath          = "audioMessage.audio"
)

// fields is the contract's table, in its order; problems are reported in it too.
var fields = func() []field {
	every := []message.Operation{message.SendText, message.SendMedia, message.SendAudio}
	text, file, audio := every[0:1], every[1:2], every[2:3]
	return []field{
		{"number", aString, every},
		{"options", anObject, every},
		{"options.delay", aNumber, every},
		{"options.presence", aString, every},
		{"options.linkPreview", aBoolean, text},
		{"options.encoding", aBoolean, audio},
		{"options.message", whatever, text},
		{"textMessage", anObject, text},
		{"textMessage.text", aString, text},
		{"mediaMessage", anObject, file},
		{"mediaMessage.mediaType", aString, file},
		{"mediaMessage.fileName", aString, file},
		{"mediaMessage.caption", aString, file},
		{mediaPath, aString, file},
		{"audioMessage", anObject, audio},
		{audioPath, aString, audio},
	}
}()

// presences says what each operation can show (contract 4.2, options.presence).
var presences = map[message.Operation][]message.Presence{
	message.SendText:  {message.Composing, message.Paused},
	message.SendMedia: {message.Composing, message.Recording},
	message.SendAudio: {message.Recording},
}

var kinds = []media.Kind{media.Image, media.Video, media.Document, media.Audio}

// intake is what became of the one string that never reaches encoding/json:
// mediaMessage.media or audioMessage.audio, taken in while it arrived.
type intake struct {
	given  bool // there was a string
	source media.Source
	err    error // the string has no usable form; a client's text
}

// parse applies every rule of contract 4.2 to a body that is strict JSON and
// whose media has been taken out. All problems are reported together, in field
// order; the message of a refused request is not to be used.
func parse(op message.Operation, body []byte, in intake, maxDelay time.Duration) (message.Message, *message.Error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	q := &request{op: op}
	if err := decoder.Decode(&q.root); err != nil {
		return message.Message{}, message.NewError(message.Internal, "the request could not be read").Because(err)
	}
	q.walk("", q.root)

	m := message.Message{
		Number:   q.number("number"),
		Delay:    q.delay("options.delay", maxDelay),
		Presence: oneOf(q, "options.presence", presences[op]),
	}
	switch op {
	case message.SendText:
		m.Content = message.Text{Body: q.text("textMessage.text"), LinkPreview: q.boolean("options.linkPreview")}
	case message.SendMedia:
		m.Content = q.file(in)
	case message.SendAudio:
		encode := q.boolean("options.encoding")
		voice := message.Voice{Source: q.source(audioPath, in), Encode: encode != nil && *encode}
		if blob := voice.Source.Blob; blob != nil && !voice.Takes(blob.Type()) {
			q.mismatch(audioPath, media.Audio, blob)
		}
		m.Content = voice
	}
	return m, q.verdict()
}

// request collects what was given and what is wrong with it.
type request struct {
	op         message.Operation
	root       map[string]any
	problems   []message.Detail
	mismatched bool // some media is not what it claims to be
}

// refused tells whether path already has a problem.
func (q *request) refused(path string) bool {
	return slices.ContainsFunc(q.problems, func(p message.Detail) bool { return p.Field == path })
}

func (q *request) problem(path, format string, args ...any) {
	q.problems = append(q.problems, message.Detail{Field: path, Message: fmt.Sprintf(format, args...)})
}

// verdict makes one error of all problems; nil: there are none. Media that is
// not what it claims has a code of its own when nothing else is wrong.
func (q *request) verdict() *message.Error {
	if len(q.problems) == 0 {
		return nil
	}
	slices.SortFunc(q.problems, func(a, b message.Detail) int {
		return cmp.Or(rank(a.Field)-rank(b.Field), strings.Compare(a.Field, b.Field))
	})
	texts := make([]string, len(q.problems))
	for i, p := range q.problems {
		texts[i] = p.Field + " " + p.Message
	}
	reason := message.InvalidRequest
	if q.mismatched && len(q.problems) == 1 {
		reason = message.MediaTypeMismatch
	}
	e := message.NewError(reason, strings.Join(texts, "; "))
	e.Details = q.problems
	return e
}

// rank is the place of a field in the contract's table; an unknown field comes
// after the known ones of its object.
func rank(path string) int {
	last := len(fields)
	parent, _, nested := strings.Cut(path, ".")
	for i, f := range fields {
		if f.path == path {
			return 2 * i
		}
		if nested && strings.HasPrefix(f.path, parent+".") {
			last = i
		}
	}
	return 2*last + 1
}

// walk looks at the members of an object for all that is wrong with any value of
// theirs: an unknown name, another operation's field, another type.
func (q *request) walk(prefix string, object map[string]any) {
	for name, value := range object {
		path := prefix + name
		i := slices.IndexFunc(fields, func(f field) bool { return f.path == path })
		switch {
		case i < 0 || strings.Contains(name, "."): // a name may look like a path
			q.unknown(prefix, name)
		case value == nil: // null counts as absent
		case !slices.Contains(fields[i].ops, q.op):
			// Of an object, the members are named where there are any.
			before := len(q.problems)
			if members, ok := value.(map[string]any); ok && fields[i].kind == anObject {
				q.walk(path+".", members)
			}
			if len(q.problems) == before {
				q.problem(path, "is only for %s", fields[i].ops[0])
			}
		case fields[i].kind == whatever:
		case kindOf(value) != fields[i].kind:
			q.problem(path, "must be %s, not %s", fields[i].kind, kindOf(value))
		case fields[i].kind == anObject:
			q.walk(path+".", value.(map[string]any))
		}
	}
}

func kindOf(value any) jsonKind {
	switch value.(type) {
	case string:
		return aString
	case json.Number:
		return aNumber
	case bool:
		return aBoolean
	case map[string]any:
		return anObject
	default:
		return anArray
	}
}

// maxNameShown bounds how much of an unknown field's name an answer repeats, in bytes.
const maxNameShown = 64

// unknown reports a field that is not in the contract and, where one is close,
// the field that was probably meant: a silently dropped field is a message that
// is not what its sender meant.
func (q *request) unknown(prefix, name string) {
	shown := name
	if len(shown) > maxNameShown {
		shown = strings.ToValidUTF8(shown[:maxNameShown], "") + "…"
	}
	if meant := q.meant(prefix, name); meant != "" {
		q.problem(prefix+shown, "is not a known field; did you mean %q?", meant)
		return
	}
	q.problem(prefix+shown, "is not a known field")
}

// meant is the path of this operation's field that name comes closest to: first
// by its letters, whatever their case and wherever it belongs (a flat "text"
// for textMessage.text), then within two typing errors. Empty: none is close.
func (q *request) meant(prefix, name string) string {
	const maxDistance = 2
	best, bestScore := "", maxDistance+1
	folded := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	if len(folded) > maxNameShown {
		return ""
	}
	for _, f := range fields {
		if !slices.Contains(f.ops, q.op) || f.kind == whatever {
			continue
		}
		leaf := f.path[strings.LastIndexByte(f.path, '.')+1:]
		score := distance(folded, strings.ToLower(leaf))
		if score >= len(leaf)/2 && score > 0 {
			continue // for a short name, two errors are another name
		}
		if f.path[:len(f.path)-len(leaf)] != prefix && score > 0 {
			score++ // a neighbour is likelier than a stranger
		}
		if score < bestScore {
			best, bestScore = f.path, score
		}
	}
	return best
}

// distance is the number of single-byte insertions, deletions and replacements
// that turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// given returns the value at path if it is there and nothing is wrong with it
// yet; a required one that is missing, and whose absence no other problem
// explains, is a problem itself.
func (q *request) given(path string, required bool) (any, bool) {
	object, name := q.root, path
	parent, leaf, nested := strings.Cut(path, ".")
	if nested {
		object, _ = q.root[parent].(map[string]any)
		name = leaf
	}
	value := object[name]
	if len(q.problems) > 0 && (q.refused(path) || q.refused(parent)) {
		return nil, false
	}
	if value == nil && required {
		q.problem(path, "is required")
	}
	return value, value != nil
}

var decoration = strings.NewReplacer("+", "", "(", "", ")", "", "-", "", ".", "", " ", "")

// isNumber is the rule ^[1-9][0-9]{6,14}$.
func isNumber(s string) bool {
	return len(s) >= 7 && len(s) <= 15 && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// number is E.164 without "+". A number that only its decoration spoils is not
// sent to all the same: the answer shows what the caller should have written.
func (q *request) number(path string) message.Number {
	value, ok := q.given(path, true)
	if !ok {
		return ""
	}
	number := value.(string)
	if isNumber(number) {
		return message.Number(number)
	}
	const rule = "must be 7 to 15 digits with the country code, without \"+\" and not beginning with 0"
	if cleaned := decoration.Replace(number); isNumber(cleaned) {
		q.problem(path, rule+"; did you mean %q?", cleaned)
	} else {
		q.problem(path, rule)
	}
	return ""
}

// delay is 0 … maxDelay milliseconds. Fractions are for text and audio only.
// A fraction of a nanosecond counts as a whole one: never less than was asked.
func (q *request) delay(path string, maxDelay time.Duration) time.Duration {
	value, ok := q.given(path, false)
	if !ok {
		return 0
	}
	number := value.(json.Number)
	milliseconds, err := strconv.ParseFloat(number.String(), 64)
	if limit := float64(maxDelay) / float64(time.Millisecond); err != nil || isNegative(number.String()) || milliseconds > limit {
		q.problem(path, "must be from 0 to %s milliseconds", strconv.FormatFloat(limit, 'f', -1, 64))
		return 0
	}
	if q.op == message.SendMedia && !isInteger(number.String()) {
		q.problem(path, "must be a whole number of milliseconds")
		return 0
	}
	return time.Duration(math.Ceil(milliseconds * float64(time.Millisecond)))
}

// isNegative looks at the digits: -1e-400 is, although its float64 is zero; -0 is not.
func isNegative(number string) bool {
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	return mantissa[0] == '-' && strings.ContainsAny(mantissa, "123456789")
}

// isInteger tells whether a JSON number is a whole one, however it is written:
// 1500, 1500.0 and 1.5e3 are. It looks at the digits, because a float64 does
// not hold all of them.
func isInteger(number string) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	fraction = strings.TrimRight(fraction, "0")
	if strings.Trim(whole+fraction, "0") == "" {
		return true // zero, whatever its exponent
	}
	places := len(fraction) // digits behind the point; negative: zeros before it
	if places == 0 {
		places = len(strings.TrimRight(whole, "0")) - len(whole)
	}
	if exponent == "" {
		return places <= 0
	}
	shift, err := strconv.Atoi(exponent)
	if err != nil { // beyond int: only the sign matters
		return !strings.HasPrefix(exponent, "-")
	}
	return shift >= places
}

func (q *request) boolean(path string) *bool {
	value, ok := q.given(path, false)
	if !ok {
		return nil
	}
	b := value.(bool)
	return &b
}

func (q *request) text(path string) string {
	value, ok := q.given(path, true)
	if !ok {
		return ""
	}
	text := value.(string)
	if strings.TrimFunc(text, unicode.IsSpace) == "" {
		q.problem(path, "must have at least one character that is not white space")
	}
	return text
}

// oneOf is an optional choice; empty: not given.
func oneOf[T ~string](q *request, path string, choices []T) T {
	value, ok := q.given(path, false)
	if !ok {
		return ""
	}
	if i := slices.Index(choices, T(value.(string))); i >= 0 {
		return choices[i]
	}
	quoted := make([]string, len(choices))
	for i, c := range choices {
		quoted[i] = strconv.Quote(string(c))
	}
	q.problem(path, "must be %s", strings.Join(quoted, " or "))
	return ""
}

// file is the content of sendMedia. Where a name or caption is given, it must
// be usable; an empty one counts as given.
func (q *request) file(in intake) message.File {
	const mediaType, fileName, caption = "mediaMessage.mediaType", "mediaMessage.fileName", "mediaMessage.caption"
	var f message.File
	if _, ok := q.given(mediaType, true); ok {
		f.Kind = oneOf(q, mediaType, kinds)
	}
	if value, ok := q.given(fileName, false); ok {
		f.Name = value.(string)
		if err := media.CheckFileName(f.Name); err != nil {
			q.problem(fileName, "%s", err)
		}
	} else if f.Kind == media.Document && !q.refused(fileName) {
		q.problem(fileName, "is required when mediaType is \"document\"")
	}
	if value, ok := q.given(caption, false); ok {
		f.Caption = value.(string)
		if f.Kind == media.Audio {
			q.problem(caption, "must be left out when mediaType is \"audio\"")
		}
	}
	f.Source = q.source(mediaPath, in)
	if blob := f.Source.Blob; blob != nil && f.Kind != "" && !blob.Type().Is(f.Kind) {
		q.mismatch(mediaPath, f.Kind, blob)
	}
	return f
}

// source is the media itself, which was taken in before the rules are applied.
func (q *request) source(path string, in intake) media.Source {
	if !in.given {
		q.given(path, true)
		return media.Source{}
	}
	if in.err != nil {
		q.problem(path, "%s", in.err)
	}
	return in.source
}

func (q *request) mismatch(path string, kind media.Kind, blob *media.Blob) {
	q.mismatched = true
	q.problem(path, "is not %s: received %d bytes of %s", articles[kind], blob.Size(), blob.Type())
}

var articles = map[media.Kind]string{
	media.Image: "an image", media.Video: "a video", media.Audio: "audio", media.Document: "a document",
}
