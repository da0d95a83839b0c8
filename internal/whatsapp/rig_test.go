package whatsapp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
	"messagesender/internal/platformtest"
)

const (
	testAccount = "shop"
	testNumber  = message.Number("491701234567")
	testPhoneID = "102290129340398"
	testToken   = "EAAJtestTokenThatMustNotShow"
	testSecret  = "app-secret-that-must-not-show"
	testVerify  = "verify-token-that-must-not-show"
	testInbound = "wamid.inbound"
)

// fakeMeta is the platform's two endpoints. It takes what it is sent, unless
// answer says otherwise.
type fakeMeta struct {
	server *httptest.Server
	active atomic.Int64 // connections with a request on them

	// answer may take over: it is asked for each request after its body was read.
	answer func(kind string, w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	uploads  map[string]upload
	messages []sentMessage
	typings  []string // inbound ids
	ids      int
}

type upload struct {
	fields      []string // names of the parts, in order
	product     string
	typ         string
	fileName    string
	partType    string
	size        int64
	length      int64 // Content-Length of the request
	contentType string
}

type sentMessage struct {
	To    message.Number
	Type  string
	Text  string
	Media string
	Raw   string
}

func newMeta(t testing.TB) *fakeMeta {
	t.Helper()
	f := &fakeMeta{uploads: map[string]upload{}}
	f.server = httptest.NewUnstartedServer(f)
	states := sync.Map{}
	f.server.Config.ConnState = func(c net.Conn, s http.ConnState) {
		old, _ := states.Swap(c, s)
		if old == http.StateActive {
			f.active.Add(-1)
		}
		if s == http.StateActive {
			f.active.Add(1)
		}
	}
	f.server.Config.ErrorLog = discardLog()
	f.server.Start()
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

func (f *fakeMeta) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("Authorization") != "Bearer "+testToken || r.Method != http.MethodPost {
		http.Error(w, `{"error":{"message":"bad token","code":190}}`, http.StatusUnauthorized)
		return
	}
	kind := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if kind == "media" {
		f.media(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct {
		To       message.Number
		Type     string
		Text     struct{ Body string }
		Image    struct{ ID, Link, Caption string }
		Video    struct{ ID, Link, Caption string }
		Document struct{ ID, Link, Caption string }
		Audio    struct{ ID, Link string }
		Status   string
		Message  string `json:"message_id"`
	}
	if err := json.Unmarshal(body, &m); err != nil || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	if m.Status == "read" {
		if f.answer == nil || !f.answer("typing", w, r) {
			f.mu.Lock()
			f.typings = append(f.typings, m.Message)
			f.mu.Unlock()
			io.WriteString(w, `{"success":true}`)
		}
		return
	}
	if f.answer != nil && f.answer("messages", w, r) {
		return
	}
	s := sentMessage{To: m.To, Type: m.Type, Raw: string(body)}
	s.Text = m.Text.Body + m.Image.Caption + m.Video.Caption + m.Document.Caption
	s.Media = m.Image.ID + m.Video.ID + m.Document.ID + m.Audio.ID
	f.mu.Lock()
	f.messages = append(f.messages, s)
	f.ids++
	id := f.ids
	f.mu.Unlock()
	fmt.Fprintf(w, `{"messaging_product":"whatsapp","contacts":[{"input":"%s","wa_id":"%s"}],"messages":[{"id":"wamid.%d"}]}`, m.To, m.To, id)
}

func (f *fakeMeta) media(w http.ResponseWriter, r *http.Request) {
	u := upload{length: r.ContentLength, contentType: r.Header.Get("Content-Type")}
	parts, err := r.MultipartReader()
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	for {
		p, err := parts.NextRawPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return
		}
		u.fields = append(u.fields, p.FormName())
		u.read(p)
	}
	if f.answer != nil && f.answer("media", w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids++
	id := fmt.Sprint(4490709327384033 + f.ids)
	f.uploads[id] = u
	fmt.Fprintf(w, `{"id":"%s"}`, id)
}

func (u *upload) read(p *multipart.Part) {
	if p.FormName() == "file" {
		u.fileName, u.partType = p.FileName(), p.Header.Get("Content-Type")
		u.size, _ = io.Copy(io.Discard, p)
		return
	}
	value, _ := io.ReadAll(p)
	switch p.FormName() {
	case "type":
		u.typ = string(value)
	case "messaging_product":
		u.product = string(value)
	}
}

func (f *fakeMeta) arrived() []platformtest.Arrival {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []platformtest.Arrival
	for _, m := range f.messages {
		all = append(all, platformtest.Arrival{Number: m.To, Text: m.Text, Size: f.uploads[m.Media].size})
	}
	return all
}

func (f *fakeMeta) received() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.messages)
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rig is a platform with all it needs.
type rig struct {
	*Platform
	logs   *logBuffer
	pauses *[]time.Duration // between attempts; none is waited out
	missed *atomic.Uint64   // presences not shown
}

// PresenceNotShown is how many presences the platform has reported as not shown.
func (r *rig) PresenceNotShown() uint64 { return r.missed.Load() }

func newRig(t testing.TB, s Settings) *rig {
	t.Helper()
	s.UserAgent = "messagesender/1.0.0"
	missed := new(atomic.Uint64)
	s.PresenceNotShown = func() { missed.Add(1) }
	client, err := NewClient(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	var mu sync.Mutex
	pauses := &[]time.Duration{}
	client.pause = func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		*pauses = append(*pauses, d)
		return ctx.Err()
	}
	logs := &logBuffer{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	records, err := OpenRecords(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = records.Close() })
	p, err := NewPlatform(client, Account{testAccount, testPhoneID, testToken, testSecret, testVerify}, records, log)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{p, logs, pauses, missed}
}

func text(body string) message.Message {
	return message.Message{Account: testAccount, Number: testNumber, Content: message.Text{Body: body}}
}

func file(t testing.TB, kind media.Kind, content string) message.Message {
	t.Helper()
	m := text("")
	m.Content = message.File{Kind: kind, Name: "report.pdf", Caption: "", Source: media.Source{Blob: platformtest.Blob(t, content)}}
	return m
}

// send prepares and delivers.
func (r *rig) send(ctx context.Context, m message.Message) (string, error) {
	d, err := r.Prepare(ctx, m)
	if err != nil {
		return "", err
	}
	defer d.Close(ctx)
	return d.Deliver(ctx)
}

func (r *rig) heard(t testing.TB) {
	t.Helper()
	if err := r.records.inbound.put(testAccount, string(testNumber), testInbound, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func discardLog() *stdlog.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) }
