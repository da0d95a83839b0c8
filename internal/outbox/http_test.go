package outbox

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

func TestListFilters(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	url := media.Source{URL: "https://example.com/"}
	names := map[string]string{"OB000000000000000000000000": "start"}
	for i, c := range []message.Content{
		message.Text{Body: "Grüße"},
		message.File{Kind: media.Image, Caption: "GRÜSSE grüße", Source: url},
		message.File{Kind: media.Document, Name: "Grüße.pdf", Source: url},
		message.File{Kind: media.Audio, Source: url},
		message.File{Kind: media.Video, Source: url},
		message.Voice{Source: url},
	} {
		m := text("")
		m.Content = c
		m.Number = message.Number(fmt.Sprint(49170000000 + i%2))
		names[send(t, s, m)] = fmt.Sprint(i)
	}
	id := func(name string) string {
		for id, n := range names {
			if n == name {
				return id
			}
		}
		return ""
	}
	for query, want := range map[string]string{
		"": "012345",
		"?number=&type=&text=&after=&limit=&wait=": "012345",
		"?number=49170000001":                      "135",
		"?number=1":                                "",
		"?type=text":                               "0",
		"?type=media":                              "1234",
		"?type=audio":                              "35",
		"?type=image":                              "1",
		"?type=video":                              "4",
		"?type=document":                           "2",
		"?text=GR%C3%9C%C3%9Fe":                    "012",
		"?text=.PDF":                               "2",
		"?text=nowhere":                            "",
		"?limit=2":                                 "01",
		"?limit=100":                               "012345",
		"?after=" + id("start"):                    "012345",
		"?after=" + id("3"):                        "45",
		"?after=" + id("5"):                        "",
		"?after=OBffffffffffff000000000000":        "",
		"?after=" + id("1") + "&type=media&limit=1&wait=1s": "2",
	} {
		got := ""
		for _, i := range ids(t, s, query) {
			got += names[i]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
}

func TestListRefuses(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	for query, field := range map[string]string{
		"?number=%2B49":                     "number",
		"?number=1234567890123456":          "number",
		"?type=voice":                       "type",
		"?after=OB1":                        "after",
		"?after=OB00000000000g000000000000": "after",
		"?after=OB00000000000A000000000000": "after",
		"?limit=0":                          "limit",
		"?limit=x":                          "limit",
		"?limit=99999999999999999999":       "limit",
		"?wait=5":                           "wait",
		"?wait=-1s":                         "wait",
		"?wait=61s":                         "wait",
		"?phone=1":                          "phone",
		"?limit=1&limit=2":                  "limit",
		"?%zz":                              "query",
		"?a;b":                              "query",
	} {
		w := do(s, "GET", "messages"+query)
		if w.Code != 400 || !strings.Contains(w.Body.String(), field) {
			t.Errorf("%s: got %d %s, want 400 that names %s", query, w.Code, w.Body, field)
		}
	}
}

func TestUnknownMessages(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	id := send(t, s, text("x"))
	for path, want := range map[string]int{
		"messages/" + id:                            200,
		"messages/" + id + "/media":                 404,
		"messages/" + id[:25] + "z":                 404,
		"messages/OB000000000000000000000000":       404,
		"messages/OB000000000000000000000000/media": 404,
		"messages/x":                                404,
	} {
		if id[25] == 'z' {
			continue
		}
		if w := do(s, "GET", path); w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
}

func TestMediaHeaders(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	svg := []byte(`<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"></svg>`)
	for _, test := range []struct {
		name, fileName  string
		content         []byte
		wantDisposition string // ID stands for the messageId
	}{
		{"an image is shown", "a.png", png(20), "inline; filename=a.png"},
		{"without a name", "", png(20), "inline; filename=ID"},
		{"a name in UTF-8", "grüße\".png", png(20), "inline; filename*=utf-8''gr%C3%BC%C3%9Fe%22.png"},
		{"HTML is a download, whatever its name", "a.png", []byte("<!DOCTYPE html><script>alert(1)</script>"), "attachment; filename=a.png"},
		{"SVG is a download", "a.svg", svg, "attachment; filename=a.svg"},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := send(t, s, file(blob(t, test.content), test.fileName, ""))
			w := do(s, "GET", "messages/"+id+"/media")
			if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), test.content) {
				t.Errorf("got %d %q", w.Code, w.Body)
			}
			for name, want := range map[string]string{
				"Content-Disposition":     strings.ReplaceAll(test.wantDisposition, "ID", id),
				"X-Content-Type-Options":  "nosniff",
				"Content-Security-Policy": "sandbox; default-src 'none'",
				"Cache-Control":           "private, no-store",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			w = do(s, "GET", "messages/"+id+"/media", "Range: bytes=2-5")
			if w.Code != 206 || !bytes.Equal(w.Body.Bytes(), test.content[2:6]) {
				t.Errorf("range: got %d %q, want 206 %q", w.Code, w.Body, test.content[2:6])
			}
		})
	}
}

func TestMediaThatDisappears(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, MaxMessages: 1})
	id := send(t, s, file(blob(t, png(100)), "", ""))
	os.RemoveAll(s.mediaDir)
	if w := do(s, "GET", "messages/"+id+"/media"); w.Code != 404 {
		t.Errorf("got %d, want 404", w.Code)
	}
}

// evictingWriter evicts everything when the answer begins.
type evictingWriter struct {
	*httptest.ResponseRecorder
	evict func()
}

func (w evictingWriter) WriteHeader(code int) {
	w.evict()
	w.ResponseRecorder.WriteHeader(code)
}

func TestMediaEvictedWhileServed(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	id := send(t, s, file(blob(t, png(100_000)), "", ""))
	w := evictingWriter{httptest.NewRecorder(), func() { do(s, "DELETE", "messages") }}
	api(s).ServeHTTP(w, httptest.NewRequest("GET", "/outbox/messages/"+id+"/media", nil))
	if !bytes.Equal(w.Body.Bytes(), png(100_000)) {
		t.Errorf("got %d with %d bytes, want all", w.Code, w.Body.Len())
	}
	if w := do(s, "GET", "messages/"+id+"/media"); w.Code != 404 {
		t.Errorf("then: got %d, want 404", w.Code)
	}
}

// hold makes a list request that is held, and returns what will hold its answer.
func hold(ctx context.Context, s *Store, query string, header ...string) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, "GET", "/outbox/messages"+query, nil)
		for _, h := range header {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		api(s).ServeHTTP(w, r)
		done <- w
	}()
	synctest.Wait()
	return done
}

func TestWait(t *testing.T) {
	const empty = "{\"messages\":[]}\n"
	t.Run("ends with the first match", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			start := time.Now()
			held := hold(t.Context(), s, "?text=wanted&wait=60s")
			time.Sleep(10 * time.Second)
			send(t, s, text("something else"))
			other := text("wanted, but not from here")
			other.Account = "b"
			send(t, s, other)
			synctest.Wait()
			if len(held) != 0 {
				t.Error("answered without a match")
			}
			id := send(t, s, text("what was wanted"))
			w := <-held
			if strings.Count(w.Body.String(), "messageId") != 1 || !strings.Contains(w.Body.String(), id) {
				t.Errorf("got %s, want %s", w.Body, id)
			}
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("took %v, want 10s", took)
			}
		})
	})
	t.Run("ends with its time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			start := time.Now()
			w := do(s, "GET", "messages?wait=5s")
			if w.Code != 200 || w.Body.String() != empty || time.Since(start) != 5*time.Second {
				t.Errorf("got %d %s after %v, want an empty list after 5s", w.Code, w.Body, time.Since(start))
			}
			if s.waits != 0 || len(s.accounts["a"].readers) != 0 {
				t.Errorf("it is still registered")
			}
		})
	})
	t.Run("does not begin when there is a match", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			send(t, s, text("x"))
			start := time.Now()
			if got := texts(t, s, "?wait=5s"); got != "x" || time.Since(start) != 0 {
				t.Errorf("got %q after %v", got, time.Since(start))
			}
		})
	})
	t.Run("ends when its client leaves or streams are stopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			start := time.Now()
			ctx, leave := context.WithCancel(t.Context())
			leaving, stopped := hold(ctx, s, "?wait=5s"), hold(t.Context(), s, "?wait=5s")
			leave()
			<-leaving
			s.StopStreams()
			if w := <-stopped; w.Code != 200 || w.Body.String() != empty || time.Since(start) != 0 {
				t.Errorf("stopped: got %d %s after %v, want an empty list at once", w.Code, w.Body, time.Since(start))
			}
			if w := do(s, "GET", "messages?wait=5s"); w.Code != 503 {
				t.Errorf("then: got %d, want 503", w.Code)
			}
			if w := do(s, "GET", "messages"); w.Code != 200 {
				t.Errorf("then, without waiting: got %d, want 200", w.Code)
			}
		})
	})
	t.Run("is bounded in number", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			var held []<-chan *httptest.ResponseRecorder
			for range maxWaits {
				held = append(held, hold(t.Context(), s, "?wait=5s"))
			}
			if w := do(s, "GET", "messages?wait=5s"); w.Code != 503 || w.Header().Get("Retry-After") != "2" {
				t.Errorf("one more: got %d, Retry-After %q, want 503, 2", w.Code, w.Header().Get("Retry-After"))
			}
			for _, h := range held {
				if w := <-h; w.Code != 200 {
					t.Errorf("got %d, want 200", w.Code)
				}
			}
		})
	})
}

func TestUnreadableMessage(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	send(t, s, text("one"))
	id := send(t, s, text("two"))
	s.accounts["a"].entries[1].at.Offset++
	if w := do(s, "GET", "messages/"+id); w.Code != 500 {
		t.Errorf("one: got %d, want 500", w.Code)
	}
	if w := do(s, "GET", "messages?text=two"); w.Code != 500 {
		t.Errorf("before the answer has begun: got %d, want 500", w.Code)
	}
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("in the middle of the answer: got %v, want %v", got, http.ErrAbortHandler)
		}
	}()
	do(s, "GET", "messages")
}
