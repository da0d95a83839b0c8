package media

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tool is an external program that a test cannot do without.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed, so nothing here was tested: %v", name, err)
	}
	return path
}

// voiceRig is an Encoder with its own spool, in which nothing may stay.
func voiceRig(t *testing.T, o EncoderOptions) (*Encoder, *Spool) {
	t.Helper()
	dir := t.TempDir()
	spool, err := OpenSpool(dir, Limits{Blob: 64 << 20, Total: 1 << 30, Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("the spool directory holds %v (%v), want nothing", files, err)
		}
		if used := spool.Used(); used != 0 {
			t.Errorf("the spool counts %d bytes in use, want 0", used)
		}
	})
	o.Spool = spool
	e := NewEncoder(t.Context(), o)
	e.Available() // some tests call what lies behind it
	return e, spool
}

func toBlob(t *testing.T, spool *Spool, content []byte) *Blob {
	t.Helper()
	w := spool.NewWriter()
	defer w.Close()
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// made is a file of the given name that ffmpeg makes of a tone of so many
// seconds, with a title in its metadata.
func made(t *testing.T, name string, seconds int, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	all := append([]string{"-v", "error", "-f", "lavfi", "-i", fmt.Sprintf("sine=duration=%d", seconds)}, args...)
	if out, err := exec.Command(tool(t, "ffmpeg"), append(all, "-metadata", "title=confidential", path)...).CombinedOutput(); err != nil {
		t.Fatalf("making %s: %v: %s", name, err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// amr is two seconds of AMR at 12.2 kbit/s, for which ffmpeg has no encoder of its own.
func amr() []byte {
	frame := append([]byte{0x3c}, make([]byte, 31)...)
	return append([]byte("#!AMR\n"), bytes.Repeat(frame, 100)...)
}

func TestEncode(t *testing.T) {
	tool(t, "ffmpeg")
	probe := tool(t, "ffprobe")
	e, spool := voiceRig(t, EncoderOptions{})
	if !e.Available() {
		t.Fatal("the encoder is not available although there is an ffmpeg")
	}
	video := []string{"-f", "lavfi", "-i", "testsrc=duration=2:size=64x64:rate=5"}
	for name, content := range map[string][]byte{
		"MP3":                    made(t, "a.mp3", 2),
		"M4A":                    made(t, "a.m4a", 2),
		"MP4 video":              made(t, "a.mp4", 2, video...),
		"QuickTime video":        made(t, "a.mov", 2, video...),
		"WAV":                    made(t, "a.wav", 2, "-ac", "2", "-ar", "8000"),
		"WAV larger than memory": made(t, "a.wav", 2, "-ac", "2", "-ar", "48000"),
		"AAC":                    made(t, "a.aac", 2),
		"FLAC":                   made(t, "a.flac", 2),
		"AIFF":                   made(t, "a.aiff", 2),
		"AMR":                    amr(),
		"Ogg/Vorbis":             made(t, "a.ogg", 2, "-c:a", "libvorbis"),
		"Ogg/Opus in stereo":     made(t, "b.ogg", 2, "-c:a", "libopus", "-ac", "2"),
		"WebM video":             made(t, "a.webm", 2, append(video, "-c:v", "libvpx", "-c:a", "libopus")...),
		"Matroska audio":         made(t, "a.mka", 2),
		"AVI":                    made(t, "a.avi", 2, video...),
		"FLV":                    made(t, "a.flv", 2, append(video, "-ar", "44100")...),
		"MPEG program stream":    made(t, "a.mpg", 2, "-f", "mpeg"),
	} {
		t.Run(name, func(t *testing.T) {
			in := toBlob(t, spool, content)
			out, err := e.Encode(t.Context(), in)
			if err != nil {
				t.Fatalf("%v (sniffed as %v)", err, in.Type())
			}
			defer out.Close()
			if !out.Type().IsOpus() {
				t.Errorf("the type is %v, want Ogg/Opus", out.Type())
			}
			if length, ok := Duration(out, out.Size()); !ok || (length-2*time.Second).Abs() > 100*time.Millisecond {
				t.Errorf("it lasts %v (%v), want 2s", length, ok)
			}
			path := filepath.Join(t.TempDir(), "out.ogg")
			sound, err := io.ReadAll(out.NewReader())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, sound, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := exec.Command(probe, "-v", "error", "-show_entries",
				"format=format_name:stream=codec_name,channels,sample_rate:format_tags:stream_tags", "-of", "compact", path).CombinedOutput()
			// ffmpeg always names the encoder; without its version it says nothing.
			want := "stream|codec_name=opus|sample_rate=48000|channels=1\nformat|format_name=ogg"
			if err != nil || strings.Replace(strings.TrimSpace(string(got)), "|tag:encoder=Lavc libopus", "", 1) != want {
				t.Errorf("ffprobe says %q (%v), want %q", got, err, want)
			}
		})
	}
}

// TestNotConverted: what names other files or URLs never reaches ffmpeg, or
// reaches it as what it is not.
func TestNotConverted(t *testing.T) {
	tool(t, "ffmpeg")
	e, spool := voiceRig(t, EncoderOptions{})
	c := newCanary(t, "tcp", "127.0.0.1:0")
	secret := filepath.Join(t.TempDir(), "secret.wav")
	if err := os.WriteFile(secret, made(t, "a.wav", 1), 0o600); err != nil {
		t.Fatal(err)
	}
	hls := fmt.Sprintf("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://%s/a.ts\n#EXTINF:1,\n%s\n#EXT-X-ENDLIST\n", c.addr, secret)
	concat := fmt.Sprintf("ffconcat version 1.0\nfile %s\nfile http://%s/a.wav\n", secret, c.addr)
	id3 := "ID3\x04\x00\x00\x00\x00\x00\x00"
	wavHead := "RIFF\xff\xff\xff\xffWAVEfmt "
	for name, content := range map[string][]byte{
		"HLS playlist":                       []byte(hls),
		"concat playlist":                    []byte(concat),
		"playlist after ID3":                 []byte(id3 + hls),
		"playlist as MP3":                    []byte("\xff\xfb\x90\x00" + hls),
		"playlist as WAV":                    []byte(wavHead + hls),
		"playlist as AMR":                    []byte("#!AMR\n" + hls),
		"playlist as AAC":                    []byte("\xff\xf1\x50\x80" + concat),
		"playlist as FLAC":                   []byte("fLaC" + concat),
		"playlist as MP4":                    []byte("\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isommp42" + hls),
		"playlist as Ogg":                    []byte("OggS\x00" + hls),
		"playlist as Matroska":               []byte("\x1a\x45\xdf\xa3" + hls),
		"MOV with its sound in another file": movWithReference(t, made(t, "a.mov", 1, "-c:a", "pcm_s16le"), secret),
		"picture":                            png,
		"nothing":                            nil,
		"video without sound":                madeSilent(t),
	} {
		t.Run(name, func(t *testing.T) {
			out, err := e.Encode(t.Context(), toBlob(t, spool, content))
			if err == nil {
				out.Close()
				t.Fatal("it was converted, want a refusal")
			}
			var refused *EncodeError
			if !errors.As(err, &refused) || refused.Retryable {
				t.Fatalf("got %v (%T), want an *EncodeError that is not retryable", err, err)
			}
			if strings.Contains(refused.Text, "/") && !strings.Contains(refused.Text, "cannot be converted") || strings.Contains(refused.Text, "ffmpeg") {
				t.Errorf("the client would read %q", refused.Text)
			}
		})
	}
}

func madeSilent(t *testing.T) []byte {
	path := filepath.Join(t.TempDir(), "v.mp4")
	if out, err := exec.Command(tool(t, "ffmpeg"), "-v", "error", "-f", "lavfi", "-i", "testsrc=duration=1:size=64x64:rate=5", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, _ := os.ReadFile(path)
	return content
}

// movWithReference replaces where a QuickTime file has its sound, "in this
// file", by an alias record for the file at path. Its moov box comes last, so
// that it may grow.
func movWithReference(t *testing.T, mov []byte, path string) []byte {
	t.Helper()
	at := bytes.LastIndex(mov, []byte("dref"))
	if at < 0 {
		t.Fatal("no dref in the file")
	}
	entry := at + 4 + 8 // after version, flags and count
	old := int(binary.BigEndian.Uint32(mov[entry:]))

	path += strings.Repeat("\x00", len(path)%2)
	alias := make([]byte, 12+150) // type, version and flags; a record without its strings
	copy(alias[4:], "alis")
	alias = binary.BigEndian.AppendUint16(alias, 2) // an absolute path
	alias = binary.BigEndian.AppendUint16(alias, uint16(len(path)))
	alias = append(alias, path...)
	alias = append(alias, 0xff, 0xff, 0, 0)
	binary.BigEndian.PutUint32(alias, uint32(len(alias)))

	crafted := bytes.Clone(mov[:entry])
	crafted = append(append(crafted, alias...), mov[entry+old:]...)
	for _, box := range []string{"moov", "trak", "mdia", "minf", "dinf", "dref"} {
		i := bytes.LastIndex(crafted[:at+4], []byte(box)) - 4
		binary.BigEndian.PutUint32(crafted[i:], binary.BigEndian.Uint32(crafted[i:])+uint32(len(alias)-old))
	}
	return crafted
}

// TestReferenceIsLive shows that the crafted file does what the encoder keeps
// it from: without the options it takes its sound from the other file.
func TestReferenceIsLive(t *testing.T) {
	e, spool := voiceRig(t, EncoderOptions{})
	secret := filepath.Join(t.TempDir(), "secret.wav")
	if err := os.WriteFile(secret, made(t, "a.wav", 1), 0o600); err != nil {
		t.Fatal(err)
	}
	in := toBlob(t, spool, movWithReference(t, made(t, "a.mov", 1, "-c:a", "pcm_s16le"), secret))
	from, err := e.inputFile(in)
	if err != nil {
		t.Fatal(err)
	}
	if from.temporary {
		defer os.Remove(from.path)
	}
	to := filepath.Join(t.TempDir(), "out.ogg")
	careless := []string{"-f", "mov", "-enable_drefs", "1", "-use_absolute_path", "1"}
	if err := e.run(t.Context(), e.arguments(careless, from.path, to, 1<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := e.adopt(to, 1<<20)
	if err != nil {
		t.Fatalf("the crafted reference is not followed by anybody: %v", err)
	}
	out.Close()
}

func TestNoEncoder(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "ffmpeg")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\necho ' A..... aac'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"not there": "no-such-program", "without libopus": plain} {
		t.Run(name, func(t *testing.T) {
			e, spool := voiceRig(t, EncoderOptions{Program: program})
			if e.Available() {
				t.Error("the encoder counts as available")
			}
			if _, err := e.Encode(t.Context(), toBlob(t, spool, amr())); !errors.Is(err, ErrNoEncoder) {
				t.Errorf("got %v, want %v", err, ErrNoEncoder)
			}
		})
	}
}

func TestVoiceNoteIsBounded(t *testing.T) {
	e, spool := voiceRig(t, EncoderOptions{})
	tool(t, "ffmpeg")
	in := toBlob(t, spool, made(t, "a.mp3", 60))
	spool.blob = 100 << 10
	_, err := e.Encode(t.Context(), in)
	var refused *EncodeError
	if !errors.As(err, &refused) || !strings.Contains(refused.Text, "too long") {
		t.Errorf("got %v, want that the audio is too long", err)
	}
}

// fakeFFmpeg is a program that has libopus and does what script says.
func fakeFFmpeg(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ffmpeg")
	content := "#!/bin/sh\ncase \"$*\" in *-encoders*) echo ' A..... libopus '; exit;; esac\n" + script
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAtMostSoManyAtOnce(t *testing.T) {
	const all, bound = 20, 2
	log := filepath.Join(t.TempDir(), "log")
	script := fmt.Sprintf("echo + >>%s\n%s \"$@\"\nresult=$?\necho - >>%[1]s\nexit $result\n", log, tool(t, "ffmpeg"))
	e, spool := voiceRig(t, EncoderOptions{Program: fakeFFmpeg(t, script), AtOnce: bound})
	in := toBlob(t, spool, made(t, "a.mp3", 2))
	var running sync.WaitGroup
	for range all {
		running.Go(func() {
			out, err := e.Encode(t.Context(), in)
			if err != nil {
				t.Error(err)
				return
			}
			out.Close()
		})
	}
	running.Wait()
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	now, most := 0, 0
	for _, line := range strings.Fields(string(content)) {
		if line == "+" {
			now++
		} else {
			now--
		}
		most = max(most, now)
	}
	if count := bytes.Count(content, []byte("+")); count != all || most != bound {
		t.Errorf("%d conversions, at most %d at once; want %d and %d", count, most, all, bound)
	}
}

func TestQueueIsFair(t *testing.T) {
	e, spool := voiceRig(t, EncoderOptions{Program: fakeFFmpeg(t, "exit 1\n"), AtOnce: 1})
	in := toBlob(t, spool, amr())
	e.turns <- struct{}{} // the first one holds on
	const waiting = 10
	var order []int
	var lock sync.Mutex
	var running sync.WaitGroup
	for i := range waiting {
		running.Go(func() {
			e.turns <- struct{}{} // as Encode does, but this can be watched
			lock.Lock()
			order = append(order, i)
			lock.Unlock()
			<-e.turns
		})
		waitUntilBlocked(t, i+1)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := e.Encode(gone, in); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left while it waited: %v, want %v", err, context.Canceled)
	}
	<-e.turns
	running.Wait()
	for i, got := range order {
		if got != i {
			t.Fatalf("the order is %v, want that of arrival", order)
		}
	}
}

// waitUntilBlocked waits until n goroutines of the test above are in the queue.
func waitUntilBlocked(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		all := string(stacks[:runtime.Stack(stacks, true)])
		blocked := 0
		for stack := range strings.SplitSeq(all, "\n\n") {
			if strings.Contains(stack, "[chan send") && strings.Contains(stack, "TestQueueIsFair") {
				blocked++
			}
		}
		if blocked == n {
			return
		}
	}
	t.Fatalf("%d goroutines do not come to wait", n)
}

// TestKilledWithItsChildren: a program and its child hold a pipe open; when it
// is at its end, both are gone.
func TestKilledWithItsChildren(t *testing.T) {
	for _, why := range []string{"the client leaves", "the time is over"} {
		t.Run(why, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "alive")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			o := EncoderOptions{Program: fakeFFmpeg(t, fmt.Sprintf("exec 3>%s\nsleep 600 &\necho started >&3\nwait\n", fifo))}
			if why == "the time is over" {
				o.Limit = 300 * time.Millisecond
			}
			e, spool := voiceRig(t, o)
			in := toBlob(t, spool, amr())
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			failed := make(chan error, 1)
			go func() {
				_, err := e.Encode(ctx, in)
				failed <- err
			}()
			alive, err := os.Open(fifo) // returns when the program has opened it as well
			if err != nil {
				t.Fatal(err)
			}
			defer alive.Close()
			reader := bufio.NewReader(alive)
			if line, err := reader.ReadString('\n'); line != "started\n" {
				t.Fatalf("read %q (%v)", line, err)
			}
			if o.Limit == 0 {
				leave()
			}
			start := time.Now()
			if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
				t.Errorf("read %q (%v), want the end", rest, err)
			}
			err = <-failed
			if took := time.Since(start); took > time.Second {
				t.Errorf("the program was gone after %s, want less than 1s", took)
			}
			var tooSlow *EncodeError
			if o.Limit == 0 && !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			} else if o.Limit > 0 && (!errors.As(err, &tooSlow) || !tooSlow.Retryable || tooSlow.Text != "the conversion was not complete after 300ms") {
				t.Errorf("got %v, want that it was too slow", err)
			}
		})
	}
}

// TestProgramSeesNoSecrets: its environment is empty, and what it says stays short and in the log.
func TestProgramSeesNoSecrets(t *testing.T) {
	t.Setenv("API_KEY", "secret")
	e, spool := voiceRig(t, EncoderOptions{Program: fakeFFmpeg(t, "echo \"key=$API_KEY\" >&2\nwhile :; do echo xxxxxxxxxxxxxxxx; done 2>&1 | head -c 100000 >&2\nexit 1\n")})
	_, err := e.Encode(t.Context(), toBlob(t, spool, amr()))
	var failed *EncodeError
	if !errors.As(err, &failed) || failed.Text != "the audio could not be converted" {
		t.Fatalf("got %v", err)
	}
	if said := failed.Error(); strings.Contains(said, "secret") || !strings.Contains(said, "key=\n") || len(said) > 700 {
		t.Errorf("the log would have %d bytes: %.100q", len(said), said)
	}
}
