// Command messagesender is an HTTP API that sends text, media and voice
// messages to a phone number on a messaging platform.
//
//	POST /message/sendText/{apiToken}            text
//	POST /message/sendMedia/{apiToken}           image, video, document, audio file
//	POST /message/sendWhatsAppAudio/{apiToken}   voice message
//
// Started without any setting it listens on 127.0.0.1:8080, makes an account,
// prints three curl calls that work, and keeps what is sent in its own outbox:
// nobody is messaged. GET /outbox/messages shows what was sent.
//
// # Accounts
//
// API_KEY and API_TOKEN, or API_KEY_FILE and API_TOKEN_FILE, make one account.
// -accounts names a JSON file with many; it holds SHA-256 digests, no secrets,
// and is read again on SIGHUP. A bad file then changes nothing and the log says
// what is wrong with it. -new-account prints an entry for it.
//
// # Signals
//
// SIGTERM and SIGINT drain the service: /readyz turns 503, new sends get 503
// shutting_down, holds that end within -shutdown-grace finish, the others are
// answered 503 unsent. A second signal ends the process at once.
//
// # Exit status
//
// 0 after an orderly end, 2 for a setting that is wrong, 1 for anything else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"messagesender/internal/account"
	"messagesender/internal/media"
	"messagesender/internal/outbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	os.Exit(exitStatus(err, os.Stderr))
}

// usageError is a wrong setting: one line for the person who made it.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func exitStatus(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "messagesender:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// run is the whole program: it serves until ctx ends and then drains.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	c, err := parseSettings(args, getenv)
	if errors.Is(err, flag.ErrHelp) {
		return printHelp(stdout)
	}
	if err != nil {
		return err
	}
	if c.newAccount != "" {
		return printNewAccount(stdout, c.newAccount)
	}
	return serve(ctx, c, getenv, stdout, stderr)
}

// settings is what contract 4.5 lets an operator choose.
type settings struct {
	addr           string
	platform       string
	sender         string
	data           string
	accounts       string
	newAccount     string
	maxDelay       time.Duration
	maxMedia       size
	maxSpool       size
	outboxMessages int
	outboxBytes    size
	shutdownGrace  time.Duration
	log            string
}

// helpGroups orders the settings for -h; every flag stands in one group.
var helpGroups = []struct{ title, flags string }{
	{"Service", "addr platform sender data log shutdown-grace"},
	{"Accounts", "accounts new-account"},
	{"Limits", "max-delay max-media max-spool"},
	{"Outbox", "outbox-messages outbox-bytes"},
}

// flags declares every setting with its default.
func (c *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("messagesender", flag.ContinueOnError)
	f.SetOutput(io.Discard) // errors and help are printed by run
	c.maxMedia, c.maxSpool, c.outboxBytes = 100<<20, 1<<30, 2<<30
	f.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on; port 0: any free one")
	f.StringVar(&c.platform, "platform", "WhatsApp", "the `word` in /message/send<Platform>Audio")
	f.StringVar(&c.sender, "sender", "outbox", "where accounts send unless the accounts file says otherwise: `outbox`")
	f.StringVar(&c.data, "data", "data", "`directory` for the outbox, media on its way and the first-run account")
	f.StringVar(&c.log, "log", "text", "form of the log on standard error: `text|json`")
	f.DurationVar(&c.shutdownGrace, "shutdown-grace", 30*time.Second, "`duration` that holds have to end in after SIGTERM")
	f.StringVar(&c.accounts, "accounts", "", "`file` of accounts, read again on SIGHUP")
	f.StringVar(&c.newAccount, "new-account", "", "print a fresh key, token and accounts-file entry for `name`, and exit")
	f.DurationVar(&c.maxDelay, "max-delay", 5*time.Minute, "longest options.delay, a `duration`")
	f.Var(&c.maxMedia, "max-media", "largest media, a `size` in bytes or with KiB, MiB, GiB")
	f.Var(&c.maxSpool, "max-spool", "most media held at once for requests on their way, a `size`")
	f.IntVar(&c.outboxMessages, "outbox-messages", 10000, "most messages kept, a `number`; the oldest go first")
	f.Var(&c.outboxBytes, "outbox-bytes", "most bytes kept, a `size`; the oldest messages go first")
	return f
}

// size is a number of bytes as a setting.
type size int64

func (s *size) String() string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if *s != 0 && int64(*s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(*s)/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

func (s *size) Set(text string) error {
	number := strings.TrimRight(text, "KMGiB")
	shift, ok := map[string]int{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[text[len(number):]]
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n <= 0 || n > 1<<50>>shift {
		return errors.New("must be a number of bytes such as 1048576, 512KiB, 100MiB or 2GiB")
	}
	*s = size(n << shift)
	return nil
}

// environmentName is the environment variable behind a flag: MAX_DELAY for -max-delay.
func environmentName(flagName string) string {
	return strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

var platformForm = regexp.MustCompile(`^[A-Za-z0-9]+$`)

// parseSettings reads flags and their environment defaults; an explicit flag wins.
func parseSettings(args []string, getenv func(string) string) (settings, error) {
	var c settings
	f := c.flags()
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, usageError{err}
	}
	if f.NArg() > 0 {
		return c, usagef("%q is not a setting; settings are flags, see -h", f.Arg(0))
	}
	explicit := map[string]bool{}
	f.Visit(func(set *flag.Flag) { explicit[set.Name] = true })
	var err error
	f.VisitAll(func(set *flag.Flag) {
		name := environmentName(set.Name)
		if value := getenv(name); value != "" && !explicit[set.Name] && set.Name != "new-account" && err == nil {
			if bad := set.Value.Set(value); bad != nil {
				err = usagef("invalid value %q for %s: %v", value, name, bad)
			}
		}
	})
	if err != nil {
		return c, err
	}
	switch {
	case !platformForm.MatchString(c.platform):
		err = usagef("-platform must be letters and digits, not %q", c.platform)
	case c.sender != "outbox":
		err = usagef("-sender must be outbox, not %q", c.sender)
	case c.log != "text" && c.log != "json":
		err = usagef("-log must be text or json, not %q", c.log)
	case c.data == "":
		err = usagef("-data must name a directory")
	case c.maxDelay < 0:
		err = usagef("-max-delay must not be negative")
	case c.shutdownGrace < 0:
		err = usagef("-shutdown-grace must not be negative")
	case c.outboxMessages < 1:
		err = usagef("-outbox-messages must be at least 1")
	case c.maxSpool < c.maxMedia:
		err = usagef("-max-spool (%s) must not be less than -max-media (%s)", &c.maxSpool, &c.maxMedia)
	}
	if _, _, bad := net.SplitHostPort(c.addr); bad != nil && err == nil {
		err = usagef("-addr must be host:port, not %q", c.addr)
	}
	return c, err
}

func printHelp(w io.Writer) error {
	fmt.Fprint(w, `messagesender sends text, media and voice messages over HTTP.

Started without settings it listens on 127.0.0.1:8080, prints three curl calls
that work, and keeps what is sent in its own outbox: nobody is messaged.

Every setting has an environment default of the same name in capitals
(-max-delay: MAX_DELAY). An explicit flag wins.
`)
	f := new(settings).flags()
	for _, group := range helpGroups {
		fmt.Fprintf(w, "\n%s\n", group.title)
		for name := range strings.FieldsSeq(group.flags) {
			set := f.Lookup(name)
			value, text := flag.UnquoteUsage(set)
			if set.DefValue != "" {
				text += " (default " + set.DefValue + ")"
			}
			fmt.Fprintf(w, "  %-26s %s\n", "-"+name+" "+value, text)
		}
	}
	_, err := fmt.Fprint(w, `
Secrets are never flags: API_KEY and API_TOKEN, or API_KEY_FILE and
API_TOKEN_FILE, make one account; -accounts names a file with many.
`)
	return err
}

func printNewAccount(w io.Writer, name string) error {
	key, token, entry, err := account.New(name)
	if err != nil {
		return usageError{err}
	}
	_, err = fmt.Fprintf(w, `key:   %s
token: %s

Give both to whoever sends; they are not shown again. For the file of -accounts:

%s
`, key, token, entry)
	return err
}

// Limits of the HTTP server (field: why).
const (
	readHeaderTime = 5 * time.Second  // a slow header is an attack or a dead peer
	idleTime       = 2 * time.Minute  // a kept-alive connection without a request
	maxHeader      = 16 << 10         // bytes
	closeTime      = 10 * time.Second // for answers already being written at the end
)

// serve opens what is needed, serves until ctx ends and drains.
func serve(ctx context.Context, c settings, getenv func(string) string, stdout, stderr io.Writer) error {
	logger := newLogger(c.log, stderr)
	set, firstRun, err := loadAccounts(c, getenv)
	if err != nil {
		return err
	}
	registry := account.NewRegistry(set)

	spool, err := media.OpenSpool(filepath.Join(c.data, "spool"), media.Limits{Blob: int64(c.maxMedia), Total: int64(c.maxSpool), Memory: spoolMemory})
	if err != nil {
		return fmt.Errorf("the media spool: %w", err)
	}
	store, err := outbox.Open(outbox.Options{Dir: filepath.Join(c.data, "outbox"), MaxMessages: c.outboxMessages, MaxBytes: int64(c.outboxBytes), Log: logger})
	if err != nil {
		return fmt.Errorf("the outbox: %w", err)
	}
	defer store.Close()

	drain := newDrain()
	s := &server{
		audioWord: c.platform,
		maxDelay:  c.maxDelay,
		maxMedia:  int64(c.maxMedia),
		accounts:  registry,
		spool:     spool,
		outbox:    store,
		writable:  func() error { return probeWrite(c.data) },
		drain:     drain,
		log:       logger,
		sender: &presenceSender{
			platform: func(string) (Platform, error) { return store, nil },
			drain:    drain,
			log:      logger,
		},
	}
	if firstRun != nil {
		s.openOutbox = firstRunAccount
	}

	// Before anybody is told that the service is there: a SIGHUP that nobody
	// waits for would end it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return err
	}
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	web := &http.Server{
		Handler:                      s.routes(),
		ReadHeaderTimeout:            readHeaderTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               maxHeader,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ErrorLog:                     slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true,
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()

	url := "http://" + listener.Addr().String()
	fmt.Fprintln(stdout, "listening on", url)
	if firstRun != nil {
		printFirstRun(stdout, url, c.platform, firstRun)
	}
	logger.Info("started", "addr", listener.Addr().String(), "accounts", len(registry.Accounts()), "messages", store.Count())

	for {
		select {
		case err := <-failed:
			return err
		case <-hangups:
			reload(c, registry, logger)
			continue
		case <-ctx.Done():
		}
		break
	}

	// The listener stays open while holds end, so that new sends are told why
	// they are refused.
	logger.Info("draining", "grace", c.shutdownGrace)
	drain.begin(c.shutdownGrace)
	store.StopStreams()
	select {
	case <-drain.idle:
	case <-time.After(c.shutdownGrace):
		cancel(shuttingDown())
	case err := <-failed:
		return err
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer stop()
	if err := web.Shutdown(end); err != nil {
		logger.Warn("some connections were closed before their answer was written", "error", err)
		_ = web.Close()
	}
	logger.Info("stopped")
	return nil
}

// spoolMemory is how much of the spool may be in memory; small media beyond it
// goes to files like large media does.
const spoolMemory = 32 << 20

func newLogger(form string, w io.Writer) *slog.Logger {
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// probeWrite writes to the data directory and cleans up.
func probeWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("x"))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

const (
	secretsAccount  = "default"   // of API_KEY and API_TOKEN
	firstRunAccount = "first-run" // made by the process itself
)

// pair is the plain key and token of the first-run account.
type pair struct{ key, token string }

// loadAccounts finds out who may send (contract 4.4); the pair is not nil when
// the process made the account itself.
func loadAccounts(c settings, getenv func(string) string) (account.Set, *pair, error) {
	key, err := secret(getenv, "API_KEY")
	if err != nil {
		return account.Set{}, nil, err
	}
	token, err := secret(getenv, "API_TOKEN")
	if err != nil {
		return account.Set{}, nil, err
	}
	host, _, _ := net.SplitHostPort(c.addr)
	switch {
	case c.accounts != "" && key+token != "":
		return account.Set{}, nil, usagef("accounts come from API_KEY and API_TOKEN or from -accounts, not from both")
	case c.accounts != "":
		set, err := account.Load(c.accounts)
		return set, nil, wrapUsage(err)
	case key != "" && token != "":
		set, err := account.FromSecrets(secretsAccount, key, token)
		return set, nil, wrapUsage(err)
	case key != "" || token != "":
		return account.Set{}, nil, usagef("API_KEY and API_TOKEN go together; only one of them is set")
	case !isLoopback(host):
		return account.Set{}, nil, usagef("listening on %q needs an account: set API_KEY and API_TOKEN, or -accounts", c.addr)
	}
	key, token, _, err = account.FirstRun(c.data)
	if err != nil {
		return account.Set{}, nil, err
	}
	set, err := account.FromSecrets(firstRunAccount, key, token)
	return set, &pair{key, token}, err
}

func wrapUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// maxSecretFile bounds a file that holds one secret, in bytes.
const maxSecretFile = 4096

// secret reads NAME or the file that NAME_FILE names; empty: neither is set.
func secret(getenv func(string) string, name string) (string, error) {
	value, file := getenv(name), getenv(name+"_FILE")
	switch {
	case value != "" && file != "":
		return "", usagef("%s and %s_FILE are both set", name, name)
	case file == "":
		return value, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", usagef("%s_FILE: %w", name, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	if err != nil {
		return "", usagef("%s_FILE: %w", name, err)
	}
	value = strings.TrimRight(string(content), "\r\n")
	if value == "" {
		return "", usagef("%s_FILE: %s is empty", name, file)
	}
	return value, nil
}

// reload reads the accounts file again. A file that is not right changes nothing.
func reload(c settings, registry *account.Registry, logger *slog.Logger) {
	if c.accounts == "" {
		logger.Info("nothing to reload: there is no accounts file")
		return
	}
	set, err := account.Load(c.accounts)
	if err != nil {
		logger.Error("accounts not reloaded; the old ones stay", "error", err)
		return
	}
	registry.Replace(set)
	logger.Info("accounts reloaded", "accounts", len(registry.Accounts()))
}

// The smallest media that a recipient's programs open, for the printed calls.
const (
	samplePNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	sampleOgg = "T2dnUwACAAAAAAAAAAAAAAAAAAAAAAIotXIBE09wdXNIZWFkAQE4AYC7AAAAAABPZ2dTAAAAAAAAAAAAAAAAAAABAAAASZW+VAEuT3B1c1RhZ3MGAAAAZmZtcGVnAQAAABQAAABlbmNvZGVyPUxhdmMgbGlib3B1c09nZ1MABPgTAAAAAAAAAAAAAAIAAACpiD87BhgWERMTEgiC4jRFRViatcgC1rXeM8WiMBE0diVAgAijQOgDPDSiQtXLWTYoQAEC/6PuD4AInVXw5F373q0UVRVYsdGU1QidX7B3MqpcS5lRgyTzvDrVsYgInV+wdzKqXo68gLtcONVhk18oCIMPmQtbYuQu4uB25ZbJQSfg"
)

func printFirstRun(w io.Writer, url, platform string, p *pair) {
	call := func(title, operation, body string) {
		fmt.Fprintf(w, "%s\n\n  curl %s/message/%s/%s \\\n    -H 'apikey: %s' -H 'Content-Type: application/json' \\\n    -d '%s'\n\n",
			title, url, operation, p.token, p.key, body)
	}
	fmt.Fprintf(w, "\nMessages go to the outbox of this process; nobody is messaged.\n\n")
	call("A text, after 1.2 seconds of \"composing\":", "sendText",
		`{"number":"15550001234","options":{"delay":1200,"presence":"composing"},"textMessage":{"text":"Hello"}}`)
	call("An image:", "sendMedia",
		`{"number":"15550001234","mediaMessage":{"mediaType":"image","caption":"A dot","media":"`+samplePNG+`"}}`)
	call("A voice message, after 2 seconds of \"recording\":", "send"+platform+"Audio",
		`{"number":"15550001234","options":{"delay":2000,"presence":"recording"},"audioMessage":{"audio":"`+sampleOgg+`"}}`)
	fmt.Fprintf(w, "What was sent:\n\n  curl %s/outbox/messages\n\n", url)
}
