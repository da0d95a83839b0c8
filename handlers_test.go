package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/account"
	"messagesender/internal/lane"
	"messagesender/internal/media"
	"messagesender/internal/message"
	"messagesender/internal/metrics"
	"messagesender/internal/openapi/openapitest"
	"messagesender/internal/strictjson"
)

// Canaries: what must never appear in a log line or in the answer to a refused
// request. Every service these tests start is checked for them when it stops.
const (
	canaryKey    = "canary-key-6b1f0f0f9d"
	canaryToken  = "canary_token_77aa01c4e2"
	canaryNumber = "15550001234"
	canaryText   = "canary text of a message"
)

var (
	samplePDF = base64.StdEncoding.EncodeToString([]byte("%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n%%EOF\n"))
	samples   = strings.NewReplacer("{token}", canaryToken, "{png}", samplePNG, "{ogg}", sampleOgg, "{pdf}", samplePDF)
)

// lockedBuffer is a bytes.Buffer for a writer and a reader at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// service is the whole program, run in this process and reached over real HTTP.
type service struct {
	t      *testing.T
	url    string
	data   string
	stop   context.CancelFunc // begins the drain
	ended  chan struct{}
	err    error // of run, once ended
	stdout lockedBuffer
	log    lockedBuffer
}

// start runs the program with the canary account on a free port.
func start(t *testing.T, args ...string) *service {
	t.Helper()
	return startWith(t, map[string]string{"API_KEY": canaryKey, "API_TOKEN": canaryToken}, args...)
}

func startWith(t *testing.T, env map[string]string, args ...string) *service {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &service{t: t, data: filepath.Join(t.TempDir(), "data"), stop: cancel, ended: make(chan struct{})}
	args = append([]string{"-addr", "127.0.0.1:0", "-data", s.data}, args...)
	started := make(chan string, 1)
	reader, writer := io.Pipe()
	go func() {
		scanner := bufio.NewScanner(io.TeeReader(reader, &s.stdout))
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			if url, ok := strings.CutPrefix(scanner.Text(), "listening on "); ok {
				started <- url
			}
		}
	}()
	go func() {
		defer close(s.ended)
		defer writer.Close()
		s.err = run(ctx, args, func(name string) string { return env[name] }, writer, &s.log)
	}()
	t.Cleanup(func() {
		cancel()
		<-s.ended
		if s.err != nil {
			t.Errorf("run ended with %v, want nil", s.err)
		}
		checkCanaries(t, "log", s.log.String())
	})
	select {
	case s.url = <-started:
	case <-s.ended:
		t.Fatalf("run ended before it listened: %v", s.err)
	}
	return s
}

// in is s for a subtest.
func (s *service) in(t *testing.T) *service { return &service{t: t, url: s.url} }

func checkCanaries(t *testing.T, where, text string) {
	t.Helper()
	for _, canary := range []string{canaryKey, canaryToken, canaryNumber, canaryText} {
		if strings.Contains(text, canary) {
			t.Errorf("the %s holds the canary %q:\n%s", where, canary, text)
		}
	}
}

// do sends one request and returns its answer whole.
func (s *service) do(method, path string, header http.Header, body io.Reader) (*http.Response, []byte) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("apikey", canaryKey)
	r.Header.Set("Content-Type", "application/json")
	maps.Copy(r.Header, header)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatalf("%s %s: reading the answer: %v", method, path, err)
	}
	if answer.StatusCode >= 400 {
		// The one place where a refused number may stand is the hint what was meant.
		checkCanaries(s.t, "error answer", strings.ReplaceAll(string(content), `did you mean \"`+canaryNumber+`\"`, ""))
		if answer.Header.Get("X-Request-Id") == "" {
			s.t.Errorf("%s %s: no X-Request-Id", method, path)
		}
	}
	return answer, content
}

func (s *service) post(path, body string) (int, failure) {
	s.t.Helper()
	answer, content := s.do("POST", path, nil, strings.NewReader(body))
	var f failure
	if err := json.Unmarshal(content, &f); err != nil {
		s.t.Fatalf("POST %s: got %q, want JSON", path, content)
	}
	return answer.StatusCode, f
}

// outboxed is every message in the outbox.
func (s *service) outboxed(query string) []map[string]any {
	s.t.Helper()
	answer, content := s.do("GET", "/outbox/messages"+query, nil, nil)
	var list struct{ Messages []map[string]any }
	if err := json.Unmarshal(content, &list); answer.StatusCode != 200 || err != nil {
		s.t.Fatalf("GET /outbox/messages: got %d %q, want a list", answer.StatusCode, content)
	}
	return list.Messages
}

func textBody(options string) string { return textTo(canaryNumber, options) }

func textTo(number, options string) string {
	return `{"number":"` + number + `","options":{` + options + `},"textMessage":{"text":"` + canaryText + `"}}`
}

// TestScripts plays testdata/scripts, which read as a specification.
func TestScripts(t *testing.T) {
	s := start(t)
	files, _ := filepath.Glob("testdata/scripts/*.txt")
	if len(files) < 3 {
		t.Fatalf("got %d script files, want at least 3", len(files))
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, script := range strings.Split(string(content), "\n## ")[1:] {
			title, script, _ := strings.Cut(script, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+title, func(t *testing.T) {
				s.in(t).play(samples.Replace(script))
			})
		}
	}
}

// play sends the request of a script and holds its answer against the script.
func (s *service) play(script string) {
	request, want, ok := strings.Cut(script, "\n=> ")
	if !ok {
		s.t.Fatal("the script has no answer")
	}
	lines := strings.Split(request, "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	header := http.Header{}
	for lines = lines[1:]; len(lines) > 0 && !strings.HasPrefix(lines[0], "{"); lines = lines[1:] {
		name, value, _ := strings.Cut(lines[0], ":")
		header[http.CanonicalHeaderKey(name)] = []string{strings.TrimSpace(value)}
	}
	answer, content := s.do(method, path, header, strings.NewReader(strings.Join(lines, "\n")))

	head, rest, _ := strings.Cut(strings.TrimSpace(want), "\n")
	status, code, _ := strings.Cut(head, " ")
	if got := fmt.Sprint(answer.StatusCode); got != status {
		s.t.Fatalf("got status %s, want %s; answer %s", got, status, content)
	}
	if method == "HEAD" {
		return
	}
	if code == "" {
		var got, wanted any
		if err := json.Unmarshal([]byte(rest), &wanted); err != nil {
			s.t.Fatalf("the script's answer is not JSON: %v", err)
		}
		if err := json.Unmarshal(content, &got); err != nil || !matches(got, wanted) {
			s.t.Errorf("got  %s\nwant %s", content, rest)
		}
		return
	}
	var f failure
	if err := json.Unmarshal(content, &f); err != nil || f.Status != "error" || string(f.Error.Code) != code {
		s.t.Fatalf("got %s, want an error of code %s", content, code)
	}
	var problems []string
	for _, d := range f.Error.Details {
		problems = append(problems, d.Field+" "+d.Message)
	}
	if rest != "" && strings.Join(problems, "\n") != rest {
		s.t.Errorf("got problems\n%s\nwant\n%s", strings.Join(problems, "\n"), rest)
	}
}

// matches compares decoded JSON; the string "*" in want stands for any string.
func matches(got, want any) bool {
	switch want := want.(type) {
	case string:
		s, ok := got.(string)
		return ok && (s == want || want == "*" && s != "")
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(want) {
			return false
		}
		for k := range want {
			if _, there := g[k]; !there || !matches(g[k], want[k]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(got, want)
}

// cell is one value of one field and what is to come of it.
type cell struct {
	name  string
	value string // JSON; empty: the field is left out
	want  string // "ok", or the field that has the problem, or a code and the field
}

// cells lists, for one field and one operation, the values of the matrix.
func cells(f field, op message.Operation) []cell {
	cs := []cell{{"missing", "", "ok"}, {"null", "null", "ok"}}
	add := func(want string, values ...string) {
		for _, v := range values {
			cs = append(cs, cell{v, v, want})
		}
	}
	wrongTypes := map[jsonKind]string{aString: `"x"`, aNumber: "1", aBoolean: "true", anObject: "{}", anArray: "[1]"}
	if !slices.Contains(f.ops, op) {
		for _, kind := range slices.Sorted(maps.Keys(wrongTypes)) {
			add(f.path, wrongTypes[kind])
		}
		add(f.path, `"\u0000"`, "-1", "false")
		if parent, _, nested := strings.Cut(f.path, "."); nested && parent != "options" {
			cs[1].want = parent // an object of another operation, though all in it is absent
		}
		return cs
	}
	for _, kind := range slices.Sorted(maps.Keys(wrongTypes)) {
		if kind != f.kind && f.kind != whatever {
			add(f.path, wrongTypes[kind])
		}
	}
	required := func() { cs[0].want, cs[1].want = f.path, f.path }
	switch f.path {
	case "number":
		required()
		add("ok", `"1234567"`, `"123456789012345"`)
		add("number", `""`, `"123456"`, `"1234567890123456"`, `"0123456789"`, `"+15550001234"`, `"15550001234\n"`, `"1555\u0000001234"`, `"１５５５０００１２３４"`, `"1555000123a"`)
	case "options.delay":
		add("ok", "0", "-0", "20", "20.0", "2e1", "0.2E2", "0e99999999999999999999")
		add("options.delay", "-1", "21", "1e400", "-1e-400", "1e99999999999999999999")
		fraction := "ok"
		if op == message.SendMedia {
			fraction = "options.delay"
		}
		add(fraction, "0.5", "19.999999999999999999", "1e-3", "1e-99999999999999999999")
	case "options.presence":
		for _, p := range []message.Presence{message.Composing, message.Recording, message.Paused} {
			want := "options.presence"
			if slices.Contains(presences[op], p) {
				want = "ok"
			}
			add(want, `"`+string(p)+`"`)
		}
		add("options.presence", `""`, `"Composing"`, `"composing\u0000"`, `"recording\n"`)
	case "options.linkPreview", "options.encoding":
		add("ok", "true", "false")
	case "options.message":
		add("ok", `"x"`, "1", "true", "{}", "[[]]", `{"deep":{"er":[null]}}`, `"\u0000"`)
	case "options":
		add("ok", "{}")
	case "textMessage":
		cs[0].want, cs[1].want = "textMessage.text", "textMessage.text"
		add("textMessage.text", "{}")
	case "mediaMessage":
		cs[0].want, cs[1].want = "mediaMessage.mediaType mediaMessage.media", "mediaMessage.mediaType mediaMessage.media"
		add("mediaMessage.mediaType mediaMessage.media", "{}")
	case "audioMessage":
		cs[0].want, cs[1].want = audioPath, audioPath
		add(audioPath, "{}")
	case "textMessage.text":
		required()
		add("ok", `"."`, `"\u0000"`, `"\u0007"`, `"a\nb"`, `"`+strings.Repeat("x", 200_000)+`"`)
		add("textMessage.text", `""`, `" "`, `"\t\r\n"`, `"\u00a0\u2003"`)
	case "mediaMessage.mediaType":
		required()
		add("ok", `"image"`)
		add("media_type_mismatch "+mediaPath, `"video"`)
		add("media_type_mismatch "+mediaPath, `"audio"`)
		add("mediaMessage.fileName", `"document"`)
		add("mediaMessage.mediaType", `""`, `"Image"`, `"sticker"`, `"image\u0000"`)
	case "mediaMessage.fileName":
		add("ok", `"a.png"`, `"`+strings.Repeat("n", 255)+`"`, `"Übersicht 1.png"`)
		add(f.path, `""`, `"`+strings.Repeat("n", 256)+`"`, `"../a.png"`, `"a/b.png"`, `"a\\b.png"`, `".."`, `"a\u0000.png"`, `"a\nb"`, `"a\u202egnp.exe"`, `"\u2066a"`, `"\u007f"`)
	case "mediaMessage.caption":
		add("ok", `""`, `"x"`, `"a\nb"`, `"\u0000"`)
	case mediaPath, audioPath:
		required()
		good, bad := sampleOgg, samplePNG
		if f.path == mediaPath {
			good, bad = bad, good
		}
		add("ok", `"`+good+`"`, `"data:application/octet-stream;base64,`+good+`"`, `"`+strings.TrimRight(good, "=")+`"`, `"`+good[:8]+`\r\n`+good[8:]+`"`,
			`"`+strings.ReplaceAll(good, "/", `\/`)+`"`)
		add("media_unavailable "+f.path, `"http://127.0.0.1/a?b=c%20d"`, `"HTTPS://[::1]/"`, `"http://localhost"`) // well formed, and not to be reached
		add("media_type_mismatch "+f.path, `"`+bad+`"`)
		add(f.path, `"===="`, `"`+good+`="`, `"A"`, `"AA A"`, `"A-+A"`, `"AAAA\t"`, `"\u0000"`, `"https://"`, `"https://user@example.org/"`, `"https://exa mple.org/"`,
			`"ftp://example.org/"`, `"file:///etc/passwd"`, `"data:image/png;base64"`, `"data:image/png;base64,"`, `"https://example.org:99999/"`)
	}
	return cs
}

// TestMatrix sends every field × value × operation and looks at the answer and
// at the outbox: what is refused leaves nothing behind.
func TestMatrix(t *testing.T) {
	s := start(t, "-max-delay", "20ms")
	paths := map[message.Operation]string{message.SendText: "sendText", message.SendMedia: "sendMedia", message.SendAudio: "sendWhatsAppAudio"}
	valid := map[message.Operation]map[string]string{
		message.SendText:  {"number": `"` + canaryNumber + `"`, "textMessage.text": `"` + canaryText + `"`},
		message.SendMedia: {"number": `"` + canaryNumber + `"`, "mediaMessage.mediaType": `"image"`, mediaPath: `"` + samplePNG + `"`},
		message.SendAudio: {"number": `"` + canaryNumber + `"`, audioPath: `"` + sampleOgg + `"`},
	}
	count, sent, last := 0, 0, ""
	for op, path := range paths {
		for _, f := range fields {
			for _, c := range cells(f, op) {
				count++
				t.Run(fmt.Sprintf("%s/%s/%.40s", op, f.path, c.name), func(t *testing.T) {
					sub := s.in(t)
					status, got := sub.post("/message/"+path+"/"+canaryToken, assemble(valid[op], f.path, c.value))
					query := "?after=" + last
					if last == "" {
						query = ""
					}
					added := sub.outboxed(query)
					if len(added) > 0 {
						last = added[len(added)-1]["messageId"].(string)
					}
					if c.want == "ok" {
						if status != 200 || len(added) != 1 {
							t.Fatalf("got %d %q and %d messages, want 200 and one", status, got.Message, len(added))
						}
						sent++
						return
					}
					code, wanted := "invalid_request", strings.Fields(c.want)
					if !strings.Contains(wanted[0], ".") && len(wanted) > 1 {
						code, wanted = wanted[0], wanted[1:]
					}
					var gotFields []string
					for _, d := range got.Error.Details {
						gotFields = append(gotFields, d.Field)
					}
					if status != message.Reason(code).Status() || string(got.Error.Code) != code || !slices.Equal(gotFields, wanted) || got.Error.Retryable {
						t.Errorf("got %d %s %v %q, want %s about %v", status, got.Error.Code, gotFields, got.Message, code, wanted)
					}
					if len(added) != 0 {
						t.Errorf("a refused request left %d messages", len(added))
					}
				})
			}
		}
	}
	if count < 300 {
		t.Errorf("got %d cells, want 300 or more", count)
	}
	t.Logf("%d cells, %d accepted", count, sent)
}

// assemble writes a body from path → JSON, with one value replaced or, empty, left out.
func assemble(valid map[string]string, path, value string) string {
	all := maps.Clone(valid)
	all[path] = value
	if value == "" {
		delete(all, path)
	}
	if !strings.Contains(path, ".") { // an object as a whole takes the place of its members
		maps.DeleteFunc(all, func(p, _ string) bool { return strings.HasPrefix(p, path+".") })
	}
	members := map[string][]string{}
	var top []string
	for _, p := range slices.Sorted(maps.Keys(all)) {
		if parent, name, nested := strings.Cut(p, "."); nested {
			members[parent] = append(members[parent], `"`+name+`":`+all[p])
		} else {
			top = append(top, `"`+p+`":`+all[p])
		}
	}
	for _, parent := range slices.Sorted(maps.Keys(members)) {
		top = append(top, `"`+parent+`":{`+strings.Join(members[parent], ",")+`}`)
	}
	return "{" + strings.Join(top, ",") + "}"
}

// fakePlatform notes when it is called; its functions may be replaced.
type fakePlatform struct {
	prepare func(context.Context) error
	show    func(context.Context) (time.Duration, error)
	deliver func(context.Context) (string, error)

	mu                       sync.Mutex
	shown, delivered, closed []time.Time
}

func (p *fakePlatform) Prepare(ctx context.Context, m message.Message) (message.Delivery, error) {
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *fakePlatform) ShowPresence(ctx context.Context) (time.Duration, error) {
	p.mu.Lock()
	p.shown = append(p.shown, time.Now())
	p.mu.Unlock()
	if p.show != nil {
		return p.show(ctx)
	}
	return 0, nil
}

func (p *fakePlatform) Deliver(ctx context.Context) (string, error) {
	p.mu.Lock()
	p.delivered = append(p.delivered, time.Now())
	p.mu.Unlock()
	if p.deliver != nil {
		return p.deliver(ctx)
	}
	return "id", nil
}

func (p *fakePlatform) Close(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = append(p.closed, time.Now())
	return nil
}

// pipeListener hands out net.Pipe connections, so that real net/http runs inside
// a synctest bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// bubble is a server over a fake platform inside a synctest bubble.
type bubble struct {
	*server
	client *http.Client
	close  func()
}

func newBubble(t *testing.T, platform Platform) *bubble {
	t.Helper()
	set, err := account.FromSecrets(secretsAccount, canaryKey, canaryToken)
	if err != nil {
		t.Fatal(err)
	}
	spool, err := media.OpenSpool(t.TempDir(), media.Limits{Blob: 1 << 20, Total: 1 << 20, Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	drain := newDrain(1000)
	m := metrics.New(version)
	s := &server{
		audioWord: "WhatsApp", maxDelay: time.Hour, maxMedia: 1 << 20, accounts: account.NewRegistry(set), spool: spool,
		writable: func() error { return nil }, drain: drain, metrics: m, log: log,
		sender: &presenceSender{route: func(string) (route, bool) { return route{Platform: platform}, true }, gatherer: &gatherer{}, lanes: lane.New(time.Hour), metrics: m, drain: drain, log: log},
	}
	listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
	web := &http.Server{Handler: s.routes()}
	go web.Serve(listener)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case listener.conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	return &bubble{s, &http.Client{Transport: transport}, func() { transport.CloseIdleConnections(); web.Close() }}
}

// send posts a text with the given options and returns status and code, or the error.
func (b *bubble) send(ctx context.Context, options string) (string, error) {
	return b.sendTo(ctx, canaryNumber, options)
}

func (b *bubble) sendTo(ctx context.Context, number, options string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://pipe/message/sendText/"+canaryToken, strings.NewReader(textTo(number, options)))
	if err != nil {
		return "", err
	}
	r.Header = http.Header{"Apikey": {canaryKey}, "Content-Type": {"application/json"}}
	answer, err := b.client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var f failure
	if err := json.NewDecoder(answer.Body).Decode(&f); err != nil {
		return "", err
	}
	return strings.TrimSpace(fmt.Sprint(answer.StatusCode, " ", f.Error.Code)), nil
}

func TestHold(t *testing.T) {
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for _, c := range []struct {
		name          string
		options       string
		show          func(context.Context) (time.Duration, error)
		wantShown     []time.Duration // since the request
		wantDelivered time.Duration
	}{
		{"no options: at once", ``, nil, nil, 0},
		{"delay without presence only waits", `"delay":1500`, nil, nil, seconds(1.5)},
		{"presence without delay is shown and not waited for", `"presence":"composing"`, nil, []time.Duration{0}, 0},
		{"a fraction of a millisecond is waited too", `"delay":0.25,"presence":"composing"`, nil, []time.Duration{0}, 250 * time.Microsecond},
		{"five minutes", `"delay":300000,"presence":"composing"`, nil, []time.Duration{0}, 5 * time.Minute},
		{"presence is shown again before it expires", `"delay":60000,"presence":"composing"`,
			func(context.Context) (time.Duration, error) { return 25 * time.Second, nil },
			[]time.Duration{0, seconds(20), seconds(40)}, seconds(60)},
		{"the delay counts from when the presence is shown", `"delay":1000,"presence":"composing"`,
			func(context.Context) (time.Duration, error) { time.Sleep(2 * time.Second); return 0, nil },
			[]time.Duration{0}, seconds(3)},
		{"a presence that hangs is given up", `"delay":1000,"presence":"composing"`,
			func(ctx context.Context) (time.Duration, error) { <-ctx.Done(); return 0, ctx.Err() },
			[]time.Duration{0}, seconds(6)},
		{"a presence that fails is harmless", `"delay":1000,"presence":"composing"`,
			func(ctx context.Context) (time.Duration, error) { return 0, errors.New("no") },
			[]time.Duration{0}, seconds(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakePlatform{show: c.show}
				b := newBubble(t, p)
				begin := time.Now()
				if got, err := b.send(t.Context(), c.options); got != "200" || err != nil {
					t.Fatalf("got %q, %v, want 200", got, err)
				}
				var shown []time.Duration
				for _, at := range p.shown {
					shown = append(shown, at.Sub(begin))
				}
				if !slices.Equal(shown, c.wantShown) {
					t.Errorf("shown at %v, want %v", shown, c.wantShown)
				}
				if len(p.delivered) != 1 || p.delivered[0].Sub(begin) != c.wantDelivered {
					t.Errorf("delivered at %v, want once after %v", p.delivered, c.wantDelivered)
				}
				if len(p.closed) != 1 {
					t.Errorf("closed %d times, want once", len(p.closed))
				}
				b.close()
			})
		})
	}
}

// A presence refresh that hangs must end with the hold, not lengthen it.
func TestHangingRefreshDoesNotLengthenTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakePlatform{}
		p.show = func(ctx context.Context) (time.Duration, error) {
			if len(p.shown) == 1 {
				return 10 * time.Second, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}
		b := newBubble(t, p)
		begin := time.Now()
		if got, err := b.send(t.Context(), `"delay":9000,"presence":"composing"`); got != "200" || err != nil {
			t.Fatalf("got %q, %v, want 200", got, err)
		}
		if got := p.delivered[0].Sub(begin); got != 9*time.Second {
			t.Errorf("delivered after %v, want 9s", got)
		}
		b.close()
	})
}

func TestPlatformErrors(t *testing.T) {
	limit := message.NewError(message.PlatformLimit, "too long")
	for _, c := range []struct {
		name     string
		platform *fakePlatform
		want     string
	}{
		{"refused while preparing", &fakePlatform{prepare: func(context.Context) error { return limit }}, "422 platform_limit"},
		{"refused at delivery", &fakePlatform{deliver: func(context.Context) (string, error) { return "", limit }}, "422 platform_limit"},
		{"an unexplained failure while preparing is ours", &fakePlatform{prepare: func(context.Context) error { return io.EOF }}, "500 internal_error"},
		{"an unexplained failure at delivery leaves the outcome unknown", &fakePlatform{deliver: func(context.Context) (string, error) { return "", io.EOF }}, "504 delivery_unknown"},
		{"a panic is an answer of the same shape", &fakePlatform{deliver: func(context.Context) (string, error) { panic("oops") }}, "500 internal_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, c.platform)
				if got, err := b.send(t.Context(), ``); got != c.want || err != nil {
					t.Errorf("got %q, %v, want %s", got, err, c.want)
				}
				b.close()
			})
		})
	}
}

func TestClientLeaves(t *testing.T) {
	t.Run("during the hold: nothing is sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &fakePlatform{}
			b := newBubble(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := b.send(ctx, `"delay":5000,"presence":"composing"`); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, want the client's own time-out", err)
			}
			synctest.Wait()
			if len(p.delivered) != 0 || len(p.closed) != 1 {
				t.Errorf("delivered %d times, closed %d times, want 0 and 1", len(p.delivered), len(p.closed))
			}
			b.close()
		})
	})
	t.Run("after delivery began: it is finished", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &fakePlatform{}
			finished := false
			p.deliver = func(ctx context.Context) (string, error) {
				select {
				case <-time.After(5 * time.Second):
					finished = true
				case <-ctx.Done():
				}
				return "id", nil
			}
			b := newBubble(t, p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := b.send(ctx, ``); err == nil {
				t.Fatal("got an answer, want the client's own time-out")
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if !finished {
				t.Error("the delivery was cut short")
			}
			b.close()
		})
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakePlatform{}
		b := newBubble(t, p)
		type outcome struct {
			answer string
			after  time.Duration
		}
		begin := time.Now()
		outcomes := make(chan outcome, 2)
		for number, delay := range map[string]string{"15550000001": `"delay":5000`, "15550000002": `"delay":60000`} {
			go func() {
				answer, err := b.sendTo(t.Context(), number, delay)
				outcomes <- outcome{fmt.Sprint(answer, err), time.Since(begin)}
			}()
		}
		time.Sleep(time.Second)
		b.drain.begin(10 * time.Second)
		if got, want := <-outcomes, (outcome{"503 shutting_down<nil>", time.Second}); got != want {
			t.Errorf("a hold that does not fit: got %v, want %v", got, want)
		}
		if got, err := b.send(t.Context(), ``); got != "503 shutting_down" || err != nil {
			t.Errorf("a new send: got %q, %v, want 503 shutting_down", got, err)
		}
		if got, want := <-outcomes, (outcome{"200<nil>", 5 * time.Second}); got != want {
			t.Errorf("a hold that fits: got %v, want %v", got, want)
		}
		<-b.drain.idle
		if len(p.delivered) != 1 {
			t.Errorf("delivered %d messages, want 1", len(p.delivered))
		}
		b.close()
	})
}

// raw sends bytes as they are and returns the answer.
func (s *service) raw(request string) *http.Response {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		s.t.Fatalf("sending: %v", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatalf("reading the answer: %v", err)
	}
	return answer
}

func TestAnswersBeforeTheBody(t *testing.T) {
	s := start(t, "-max-media", "1MiB")
	head := func(key string, length int, more string) string {
		return fmt.Sprintf("POST /message/sendMedia/%s HTTP/1.1\r\nHost: x\r\napikey: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", canaryToken, key, length, more)
	}
	for _, c := range []struct {
		name, request string
		want          int
	}{
		{"a wrong key is refused before a body byte arrives", head("wrong", 1000, ""), 401},
		{"a wrong key with Expect", head("wrong", 1000, "Expect: 100-continue\r\n"), 401},
		{"a Content-Length that is too large is refused before a body byte arrives", head(canaryKey, 1<<30, ""), 413},
		{"one that is too large with Expect", head(canaryKey, 1<<30, "Expect: 100-continue\r\n"), 413},
		{"a refused body is read to its end", head(canaryKey, 2<<20, "") + strings.Repeat("x", 2<<20), 400},
		{"a body that is too large is refused while it arrives", head(canaryKey, 2<<20, "") + `{"mediaMessage":{"media":"` + strings.Repeat("A", 2<<20-26), 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := s.in(t).raw(c.request); got.StatusCode != c.want {
				t.Errorf("got %d, want %d", got.StatusCode, c.want)
			}
		})
	}
}

func TestTextBodyLimit(t *testing.T) {
	s := start(t)
	body := textBody("")
	fits := strings.Replace(body, canaryText, strings.Repeat("x", maxTextBody-len(body)+len(canaryText)), 1)
	if status, got := s.post("/message/sendText/"+canaryToken, fits); status != 200 {
		t.Errorf("a body of %d bytes: got %d %q, want 200", len(fits), status, got.Message)
	}
	status, got := s.post("/message/sendText/"+canaryToken, fits+" ")
	if status != 413 || got.Error.Code != message.TooLarge || !strings.Contains(got.Message, fmt.Sprint(maxTextBody)) {
		t.Errorf("one byte more: got %d %q, want 413 naming %d", status, got.Message, maxTextBody)
	}
}

func TestSpoolBudget(t *testing.T) {
	s := start(t, "-max-media", "1MiB", "-max-spool", "1MiB")
	body := func(delay int) string {
		return fmt.Sprintf(`{"number":"%s","options":{"delay":%d},"mediaMessage":{"mediaType":"document","fileName":"a","media":"%s"}}`,
			canaryNumber, delay, base64.StdEncoding.EncodeToString(make([]byte, 700<<10)))
	}
	held := make(chan int)
	go func() {
		answer, _ := s.do("POST", "/message/sendMedia/"+canaryToken, nil, strings.NewReader(body(2000)))
		held <- answer.StatusCode
	}()
	eventually(t, "the first is spooled", func() bool {
		files, _ := os.ReadDir(filepath.Join(s.data, "spool"))
		return len(files) == 1 && s.size(files[0]) == 700<<10
	})
	answer, content := s.do("POST", "/message/sendMedia/"+canaryToken, nil, strings.NewReader(body(0)))
	if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" || !strings.Contains(string(content), `"unavailable","retryable":true`) {
		t.Errorf("a full spool: got %d %s, want 503 unavailable with Retry-After", answer.StatusCode, content)
	}
	if got := <-held; got != 200 {
		t.Errorf("what was spooled before: got %d, want 200", got)
	}
	if status, _ := s.post("/message/sendMedia/"+canaryToken, body(0)); status != 200 {
		t.Errorf("after the spool is free again: got %d, want 200", status)
	}
}

func (s *service) size(entry os.DirEntry) int64 {
	info, err := entry.Info()
	if err != nil {
		return 0
	}
	return info.Size()
}

// TestThousandClientsLeave: nothing is sent for them and nothing of them stays.
func TestThousandClientsLeave(t *testing.T) {
	s := start(t)
	before := runtime.NumGoroutine()
	const clients = 1000
	conns := make([]net.Conn, clients)
	for i := range conns {
		body := textTo(fmt.Sprint(15550000000+i), `"delay":60000,"presence":"composing"`)
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /message/sendText/%s HTTP/1.1\r\nHost: x\r\napikey: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", canaryToken, canaryKey, len(body), body)
		conns[i] = conn
	}
	eventually(t, "every request is held", func() bool { return runtime.NumGoroutine() >= before+clients })
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+2 })
	if got := len(s.outboxed("")); got != 0 {
		t.Errorf("%d messages were sent, want 0", got)
	}
}

// eventually waits for what other goroutines bring about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestOutboxRecord(t *testing.T) {
	s := start(t)
	begin := time.Now()
	if status, got := s.post("/message/sendText/"+canaryToken, textBody(`"delay":50,"presence":"composing","linkPreview":true`)); status != 200 {
		t.Fatalf("got %d %q, want 200", status, got.Message)
	}
	list := s.outboxed("?number=" + canaryNumber)
	if len(list) != 1 {
		t.Fatalf("got %d messages, want 1", len(list))
	}
	m := list[0]
	for name, want := range map[string]any{"operation": "text", "number": canaryNumber, "text": canaryText, "presence": "composing", "delay": 50.0, "linkPreview": true, "state": "sent"} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	at := func(name string) time.Time {
		moment, err := time.Parse(time.RFC3339Nano, fmt.Sprint(m[name]))
		if err != nil {
			t.Errorf("%s is %v, want a time", name, m[name])
		}
		return moment
	}
	if held := at("presenceUntil").Sub(at("presenceFrom")); held < 50*time.Millisecond {
		t.Errorf("the presence was shown for %v, want at least 50ms", held)
	}
	if at("requestedAt").Before(begin.Add(-time.Millisecond)) || at("sentAt").Before(at("presenceFrom")) {
		t.Errorf("the times are not in order: %v", m)
	}
}

func TestWrongSettings(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("tooshort\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	account := map[string]string{"API_KEY": canaryKey, "API_TOKEN": canaryToken}
	with := func(name, value string) map[string]string {
		env := maps.Clone(account)
		env[name] = value
		return env
	}
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
	}{
		{"an unknown flag", account, []string{"-nonsense"}},
		{"a word that is no flag", account, []string{"serve"}},
		{"a duration without a unit", account, []string{"-max-delay", "300000"}},
		{"a negative duration", account, []string{"-max-delay", "-1s"}},
		{"a wrong size", account, []string{"-max-media", "100 apples"}},
		{"a wrong environment value", with("MAX_MEDIA", "lots"), nil},
		{"a platform that is no word", account, []string{"-platform", "What sApp"}},
		{"an unknown sender", account, []string{"-sender", "pigeon"}},
		{"an unknown log form", account, []string{"-log", "xml"}},
		{"an address without a port", account, []string{"-addr", "localhost"}},
		{"no account on a public address", nil, []string{"-addr", "0.0.0.0:0"}},
		{"a key without a token", map[string]string{"API_KEY": canaryKey}, nil},
		{"a short key", with("API_KEY", "tooshort"), nil},
		{"a short key in a file", map[string]string{"API_KEY_FILE": short, "API_TOKEN": canaryToken}, nil},
		{"a key in two places", with("API_KEY_FILE", short), nil},
		{"a token that is no path segment", with("API_TOKEN", "0123456789abcdef/"), nil},
		{"an accounts file that is not there", nil, []string{"-accounts", filepath.Join(t.TempDir(), "none.json")}},
		{"accounts from two places", account, []string{"-accounts", short}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // a setting that is taken after all must not leave a server
			var stdout, stderr bytes.Buffer
			args := append([]string{"-data", filepath.Join(t.TempDir(), "data")}, c.args...)
			err := run(ctx, args, func(name string) string { return c.env[name] }, &stdout, &stderr)
			if got := exitStatus(err, &stderr); got != 2 {
				t.Errorf("got exit status %d (%v), want 2", got, err)
			}
			if got := strings.Count(stderr.String(), "\n"); got != 1 {
				t.Errorf("got %d lines, want one: %q", got, stderr.String())
			}
			checkCanaries(t, "error", stderr.String())
		})
	}
}

func TestHelpNamesEverySetting(t *testing.T) {
	var stdout bytes.Buffer
	if err := run(t.Context(), []string{"-h"}, func(string) string { return "" }, &stdout, io.Discard); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var c settings
	for name := range strings.FieldsSeq(strings.Join(func() (all []string) {
		for _, g := range helpGroups {
			all = append(all, g.Flags)
		}
		return all
	}(), " ")) {
		if c.flags().Lookup(name) == nil {
			t.Errorf("help has -%s, which is no flag", name)
		}
	}
	f := c.flags()
	f.VisitAll(func(set *flag.Flag) {
		if !strings.Contains(stdout.String(), "  -"+set.Name+" ") {
			t.Errorf("help does not name -%s", set.Name)
		}
		if !strings.Contains(string(readme), "`-"+set.Name) {
			t.Errorf("the README does not name -%s", set.Name)
		}
	})
}

func TestAccountsFileIsReloadedOnHangup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "accounts.json")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout bytes.Buffer
	if err := run(t.Context(), []string{"-new-account", "shop"}, func(string) string { return "" }, &stdout, io.Discard); err != nil {
		t.Fatal(err)
	}
	var key, token string
	fmt.Sscanf(stdout.String(), "key: %s\ntoken: %s", &key, &token)
	_, entry, _ := strings.Cut(stdout.String(), "\n{")
	write(`{"accounts":[{"name":"other","token":"sha256:` + strings.Repeat("1", 64) + `","keys":[{"key":"sha256:` + strings.Repeat("2", 64) + `"}]}]}`)
	s := startWith(t, nil, "-accounts", file)
	send := func() int {
		answer, _ := s.do("POST", "/message/sendText/"+token, http.Header{"Apikey": {key}}, strings.NewReader(textBody("")))
		return answer.StatusCode
	}
	if got := send(); got != 401 {
		t.Errorf("before the reload: got %d, want 401", got)
	}
	hangup := func(logged string) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log says "+logged, func() bool { return strings.Contains(s.log.String(), logged) })
	}
	write(`{"accounts":[{` + entry + `]}`)
	hangup("accounts reloaded")
	if got := send(); got != 200 {
		t.Errorf("after the reload: got %d, want 200", got)
	}
	write(`{"accounts":[{"name":"broken"}]}`)
	hangup("accounts not reloaded")
	if got := send(); got != 200 {
		t.Errorf("after a bad file: got %d, want 200", got)
	}
}

// description is the one of a process with the default platform word.
func description(t *testing.T, maxDelay time.Duration) *openapitest.Description {
	t.Helper()
	d, err := openapitest.Read("WhatsApp", maxDelay)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var sendRoutes = map[message.Operation]string{
	message.SendText:  "POST /message/sendText/{apiToken}",
	message.SendMedia: "POST /message/sendMedia/{apiToken}",
	message.SendAudio: "POST /message/sendWhatsAppAudio/{apiToken}",
}

// TestDescribedRoutes holds the description against every pattern that routes
// registers, also under a condition; so it reads the source.
func TestDescribedRoutes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "handlers.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var pattern func(ast.Expr) string
	pattern = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, _ := strconv.Unquote(e.Value)
			return text
		case *ast.BinaryExpr:
			return pattern(e.X) + pattern(e.Y)
		default: // s.audioWord, the one thing in a pattern that is not a literal
			return "WhatsApp"
		}
	}
	var registered []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "route" {
			// "/outbox/{$}" is the mux's way to write a path with nothing behind it.
			registered = append(registered, strings.TrimSuffix(pattern(call.Args[0]), "{$}"))
		}
		return true
	})
	slices.Sort(registered)
	if described := description(t, 0).Routes(); !slices.Equal(registered, described) {
		t.Errorf("registered\n%s\ndescribed\n%s", strings.Join(registered, "\n"), strings.Join(described, "\n"))
	}
}

// TestDescribedFields holds the description against the table of fields.
func TestDescribedFields(t *testing.T) {
	d := description(t, 0)
	types := map[jsonKind][]string{aString: {"string"}, aNumber: {"number"}, aBoolean: {"boolean"}, anObject: {"object"}, whatever: nil}
	for op, route := range sendRoutes {
		described, err := d.Fields(route)
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for _, f := range fields {
			if !slices.Contains(f.ops, op) {
				continue
			}
			known[f.path] = true
			got, ok := described[f.path]
			if !ok {
				t.Errorf("%s: %s is not described", op, f.path)
				continue
			}
			want := types[f.kind]
			if op == message.SendMedia && f.path == "options.delay" {
				want = []string{"integer"}
			}
			if !slices.Equal(got.Types, want) {
				t.Errorf("%s: %s is described as %v, want %v", op, f.path, got.Types, want)
			}
			var choices []string
			switch f.path {
			case "options.presence":
				for _, p := range presences[op] {
					choices = append(choices, string(p))
				}
			case "mediaMessage.mediaType":
				for _, k := range kinds {
					choices = append(choices, string(k))
				}
			}
			if !slices.Equal(slices.Sorted(slices.Values(got.Enum)), slices.Sorted(slices.Values(choices))) {
				t.Errorf("%s: %s is described with the choices %v, want %v", op, f.path, got.Enum, choices)
			}
		}
		for path := range described {
			if !known[path] {
				t.Errorf("%s: %s is described and not known", op, path)
			}
		}
	}
}

// TestDescribedRules gives every cell of the matrix to both the rules and the
// description: what is described as valid is taken and the other way round. The
// description cannot say what depends on what media holds, where it is, or how
// many bytes or digits something has: there it may be the more lenient, and only
// where this test says so.
func TestDescribedRules(t *testing.T) {
	const maxDelay = 20 * time.Millisecond
	d := description(t, maxDelay)
	valid := map[message.Operation]map[string]string{
		message.SendText:  {"number": `"` + canaryNumber + `"`, "textMessage.text": `"` + canaryText + `"`},
		message.SendMedia: {"number": `"` + canaryNumber + `"`, "mediaMessage.mediaType": `"image"`, mediaPath: `"` + samplePNG + `"`},
		message.SendAudio: {"number": `"` + canaryNumber + `"`, audioPath: `"` + sampleOgg + `"`},
	}
	lenient := map[string][]string{
		// Nearer to a limit than a float64 can tell.
		"options.delay": {"-1e-400", "19.999999999999999999", "1e-99999999999999999999"},
		// Whether padding is right, and the parts of a URL.
		mediaPath: {`"A"`, `"https://user@example.org/"`, `"https://example.org:99999/"`},
		audioPath: {`"A"`, `"https://user@example.org/"`, `"https://example.org:99999/"`, `"` + sampleOgg + `="`},
	}
	count, let := 0, 0
	for op, route := range sendRoutes {
		body, err := d.Body(route)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			for _, c := range cells(f, op) {
				count++
				request := assemble(valid[op], f.path, c.value)
				problem := body.Check([]byte(request))
				code, _, _ := strings.Cut(c.want, " ")
				taken := c.want == "ok" || code == "media_type_mismatch" || code == "media_unavailable"
				if taken && problem != nil {
					t.Errorf("%s: %s = %.60s is taken, and described as wrong: %v", op, f.path, c.value, problem)
				}
				if !taken && problem == nil {
					if let++; !slices.Contains(lenient[f.path], c.value) {
						t.Errorf("%s: %s = %.60s is refused, and described as valid", op, f.path, c.value)
					}
				}
			}
		}
	}
	t.Logf("measured: %d cells, %d of them described more leniently than they are", count, let)
}

// TestDescribedKey holds the description of Idempotency-Key, and of the same key
// as a parameter, against the rule.
func TestDescribedKey(t *testing.T) {
	d := description(t, 0)
	for _, c := range []struct{ route, parameter string }{
		{sendRoutes[message.SendText], "header Idempotency-Key"},
		{sendRoutes[message.SendMedia], "header Idempotency-Key"},
		{sendRoutes[message.SendAudio], "header Idempotency-Key"},
		{"GET /message/outcome/{apiToken}", "query key"},
	} {
		schema, err := d.Parameter(c.route, c.parameter)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"", "a", "~!", "a b", "é", "\x7f", "\t", strings.Repeat("k", maxKey), strings.Repeat("k", maxKey+1)} {
			text, err := json.Marshal(key)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := schema.Check(text) == nil, isKey(key); got != want {
				t.Errorf("%s of %s: %.20q is described as valid: %v, want %v", c.parameter, c.route, key, got, want)
			}
		}
	}
}

// BenchmarkBase64 takes in 16 MiB of Base64, hashes it and keeps it in a file: as
// the service does, and the plain way.
func BenchmarkBase64(b *testing.B) {
	content := bytes.Repeat([]byte("0123456789abcde\xff"), 1<<20)
	body := []byte(`{"number":"15550001234","mediaMessage":{"mediaType":"document","fileName":"a","media":"` + base64.StdEncoding.EncodeToString(content) + `"}}`)
	b.Run("strictjson and spool", func(b *testing.B) {
		spool, err := media.OpenSpool(b.TempDir(), media.Limits{Blob: 1 << 30, Total: 1 << 30})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			sink := spool.NewIntake()
			_, err := strictjson.Object(bytes.NewReader(body), strictjson.Options{Path: operations[message.SendMedia].path, Sink: sink, MaxRest: maxTextBody, MaxBody: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			source, err := sink.Finish()
			if err != nil {
				b.Fatal(err)
			}
			source.Close()
		}
	})
	b.Run("encoding json and base64", func(b *testing.B) {
		file := filepath.Join(b.TempDir(), "media")
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			read, err := io.ReadAll(bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			var decoded struct{ MediaMessage struct{ Media string } }
			if err := json.Unmarshal(read, &decoded); err != nil {
				b.Fatal(err)
			}
			plain, err := base64.StdEncoding.DecodeString(decoded.MediaMessage.Media)
			if err != nil {
				b.Fatal(err)
			}
			_ = sha256.Sum256(plain)
			if err := os.WriteFile(file, plain, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	})
}
