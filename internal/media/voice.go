package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	// maxVoiceNote is how large a converted voice note may become, in bytes:
	// more than an hour, and what messengers take at most.
	maxVoiceNote = 16 << 20
	voiceBitrate = "32k" // bits per second; speech is transparent at that

	defaultEncodeLimit = time.Minute
	probeLimit         = 10 * time.Second
	killLimit          = time.Second // to wait for what a killed program left open
	maxStderr          = 512         // bytes kept for the log
)

// ErrNoEncoder is the error of Encode where there is no ffmpeg that can do it.
var ErrNoEncoder = errors.New("there is no ffmpeg with libopus")

// EncodeError is audio that could not be converted.
type EncodeError struct {
	Text      string // for the client
	Retryable bool   // it was too slow, which may have been the load
	Cause     error  // for the operator; nil: Text says it all
}

// Error is the operator's text.
func (e *EncodeError) Error() string {
	if e.Cause != nil {
		return e.Text + ": " + e.Cause.Error()
	}
	return e.Text
}

func (e *EncodeError) Unwrap() error { return e.Cause }

// EncoderOptions is what an Encoder is made of.
type EncoderOptions struct {
	Spool   *Spool
	Program string        // name or path; empty: ffmpeg
	AtOnce  int           // conversions at the same time; 0: as many as there are CPUs
	Limit   time.Duration // of one conversion, without the wait for its turn; 0: a minute
}

// Encoder makes voice notes with ffmpeg. It is safe for concurrent use.
type Encoder struct {
	spool   *Spool
	program string // empty: there is none; to be read once probed is closed
	probed  chan struct{}
	limit   time.Duration
	turns   chan struct{} // holds one for each running conversion
}

// NewEncoder looks for the program and asks it whether it has libopus. That takes
// some 50 ms, at most probeLimit, and goes on after NewEncoder has returned, until
// it is done or ctx ends. Without the program the Encoder is not Available, which
// is no error.
func NewEncoder(ctx context.Context, o EncoderOptions) *Encoder {
	atOnce := orDefault(o.AtOnce, runtime.NumCPU())
	e := &Encoder{
		spool:  o.Spool,
		limit:  orDefault(o.Limit, defaultEncodeLimit),
		turns:  make(chan struct{}, atOnce),
		probed: make(chan struct{}),
	}
	go func() {
		defer close(e.probed)
		if path, err := exec.LookPath(orDefault(o.Program, "ffmpeg")); err == nil && hasOpus(ctx, path) {
			e.program = path
		}
	}()
	return e
}

// Available reports whether Encode can work at all. Right after NewEncoder it
// waits until that is known.
func (e *Encoder) Available() bool {
	<-e.probed
	return e.program != ""
}

func hasOpus(ctx context.Context, program string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	list, err := command(ctx, program, "-nostdin", "-hide_banner", "-encoders").Output()
	return err == nil && bytes.Contains(list, []byte(" libopus "))
}

// Encode converts the first audio track of in to a voice note: Ogg/Opus, mono,
// 48 kHz, without metadata. The caller closes both blobs; in stays open and as
// it is. Conversions begin in the order in which they were asked for. The error
// is ErrNoEncoder, an *EncodeError, the end of ctx, or one of the spool.
func (e *Encoder) Encode(ctx context.Context, in *Blob) (*Blob, error) {
	if !e.Available() {
		return nil, ErrNoEncoder
	}
	demuxer := demuxerOf(in.Type())
	if demuxer == nil {
		return nil, &EncodeError{Text: fmt.Sprintf("%s cannot be converted to a voice message", in.Type())}
	}
	// Go lets blocked senders through in the order of their arrival.
	select {
	case e.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-e.turns }()

	from, err := e.inputFile(in)
	if err != nil {
		return nil, err
	}
	if from.temporary {
		defer os.Remove(from.path)
	}
	file, err := e.spool.createFile(nil)
	if err != nil {
		return nil, err
	}
	to := file.Name()
	defer os.Remove(to)
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("converting media: %w", err)
	}
	maxSize := min(maxVoiceNote, e.spool.blob)
	if err := e.run(ctx, e.arguments(demuxer, from.path, to, maxSize)); err != nil {
		return nil, err
	}
	return e.adopt(to, maxSize)
}

type inputFile struct {
	path      string
	temporary bool
}

// inputFile is where the program finds the bytes of b: in the spool's own
// file, or in one made for a blob that is in memory.
func (e *Encoder) inputFile(b *Blob) (inputFile, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return inputFile{}, os.ErrClosed
	}
	if b.path != "" {
		return inputFile{path: b.path}, nil
	}
	file, err := e.spool.createFile(b.mem)
	if err != nil {
		return inputFile{}, err
	}
	if err := file.Close(); err != nil {
		os.Remove(file.Name())
		return inputFile{}, fmt.Errorf("converting media: %w", err)
	}
	return inputFile{path: file.Name(), temporary: true}, nil
}

// demuxerOf is the input options that hold ffmpeg to the format that was
// sniffed; nil for what is not converted. ffmpeg must never guess: it would take
// a text for a playlist and fetch what that names.
func demuxerOf(t Type) []string {
	switch t {
	case typeMP3:
		return []string{"-f", "mp3"}
	case typeAAC:
		return []string{"-f", "aac"}
	case typeWAV:
		return []string{"-f", "wav"}
	case typeAIFF:
		return []string{"-f", "aiff"}
	case typeFLAC:
		return []string{"-f", "flac"}
	case typeAMR, typeAMRWB:
		return []string{"-f", "amr"}
	case typeOpus, typeVorbis, typeOggAudio, typeOggVideo:
		return []string{"-f", "ogg"}
	case typeWebM, typeWebMAudio, typeMatroska, typeMatroskaAudio:
		return []string{"-f", "matroska"}
	case typeM4A, type3GPAudio, typeMP4, type3GP, type3G2, typeQuickTime:
		// A track may lie in another file, by reference: never followed.
		return []string{"-f", "mov", "-enable_drefs", "0", "-use_absolute_path", "0"}
	case typeAVI:
		return []string{"-f", "avi"}
	case typeFLV:
		return []string{"-f", "flv"}
	case typeMPEG:
		return []string{"-f", "mpeg"}
	}
	return nil
}

func (e *Encoder) arguments(demuxer []string, from, to string, maxSize int64) []string {
	args := []string{
		"-nostdin", "-hide_banner", "-v", "error", "-y",
		// CPU time. It is what ends the program should this process be killed.
		"-timelimit", strconv.Itoa(int(e.limit/time.Second) + 1),
		"-protocol_whitelist", "file,pipe",
	}
	args = append(args, demuxer...)
	return append(args,
		"-i", "file:"+from,
		"-map", "0:a:0", "-vn", "-sn", "-dn", "-map_metadata", "-1", "-map_chapters", "-1",
		"-ac", "1", "-ar", "48000", "-c:a", "libopus", "-b:a", voiceBitrate,
		"-fflags", "+bitexact", "-flags:a", "+bitexact", // no version of ffmpeg in its one tag
		"-fs", strconv.FormatInt(maxSize, 10),
		"-f", "ogg", "file:"+to,
	)
}

// run runs the program to its end, or kills it with its children at the end of
// ctx or of the limit.
func (e *Encoder) run(ctx context.Context, args []string) error {
	limited, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	cmd := command(limited, e.program, args...)
	stderr := &headWriter{rest: maxStderr}
	cmd.Stderr = stderr
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return &EncodeError{Text: fmt.Sprintf("the conversion was not complete after %s", e.limit), Retryable: true}
	}
	return &EncodeError{
		Text:  "the audio could not be converted",
		Cause: fmt.Errorf("ffmpeg: %w: %s", err, bytes.TrimSpace(stderr.kept)),
	}
}

// command runs without a shell and with nothing from this process's
// environment, which holds secrets, in a process group of its own. The end of
// ctx kills the group.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{} // nil would be this process's
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = killLimit
	return cmd
}

// adopt takes the voice note at path into the spool.
func (e *Encoder) adopt(path string, maxSize int64) (*Blob, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("converting media: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("converting media: %w", err)
	}
	if info.Size() >= maxSize { // ffmpeg cuts there and calls it a success
		return nil, &EncodeError{Text: fmt.Sprintf("the audio is too long: as a voice message it is larger than %d bytes", maxSize)}
	}
	if length, ok := Duration(file, info.Size()); !ok || length == 0 {
		return nil, &EncodeError{Text: "there is no sound to be converted"}
	}
	w := e.spool.NewWriter()
	defer w.Close()
	if _, err := io.Copy(w, file); err != nil {
		return nil, err
	}
	return w.Finish()
}

// headWriter keeps the first bytes that are written to it and swallows the others.
type headWriter struct {
	kept []byte
	rest int
}

func (w *headWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.rest)
	w.kept = append(w.kept, p[:n]...)
	w.rest -= n
	return len(p), nil
}
