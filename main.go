// Command messagesender is an HTTP API that sends text, media and voice
// messages to a phone number on a messaging platform.
//
//	POST /message/sendText/{apiToken}            text
//	POST /message/sendMedia/{apiToken}           image, video, document, audio file
//	POST /message/sendWhatsAppAudio/{apiToken}   voice message
//
// GET /openapi.json describes these and all others.
//
// Started without any setting it listens on 127.0.0.1:8080, makes an account,
// prints three curl calls that work, and keeps what is sent in its own outbox:
// nobody is messaged. /outbox/ shows what was sent. -sender whatsapp sends through
// the WhatsApp Cloud API instead; -h lists every setting.
//
// # Accounts
//
// API_KEY and API_TOKEN, or API_KEY_FILE and API_TOKEN_FILE, make one account.
// -accounts names a JSON file with many; of keys and tokens it holds digests only,
// and is read again on SIGHUP. A bad file then changes nothing and the log says
// what is wrong with it. -new-account prints an entry for it.
//
// # Data
//
// -data holds all that outlives the process: the journal of idempotency keys, the
// outbox, what is known of WhatsApp messages, and the first-run account. One
// process at a time may use it. A log that is damaged in the middle is refused at
// the start, with the place; -repair cuts it there and keeps a copy beside it.
//
// # Watching it
//
// GET /healthz, /readyz and /metrics; one log line for each request on standard
// error. The first line on standard output says where the service listens.
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
	"crypto/tls"
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
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"messagesender/internal/account"
	"messagesender/internal/appendlog"
	"messagesender/internal/clientaddr"
	"messagesender/internal/journal"
	"messagesender/internal/lane"
	"messagesender/internal/media"
	"messagesender/internal/metrics"
	"messagesender/internal/openapi"
	"messagesender/internal/outbox"
	"messagesender/internal/setting"
	"messagesender/internal/tlscert"
	"messagesender/internal/whatsapp"
)

// gcPercent trades memory for processor time. Measured with go run ./bench: at 300
// a process that sends texts takes 28 MiB instead of 18 at Go's own 100, and does a
// tenth more. GOGC in the environment has the last word.
const gcPercent = 300

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
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
	switch {
	case c.version:
		return printVersion(stdout)
	case c.repair:
		return repair(stdout, c.data)
	case c.health != "":
		return checkHealth(ctx, c.health)
	case c.newAccount != "":
		return printNewAccount(stdout, c.newAccount)
	}
	return serve(ctx, c, getenv, stdout, stderr)
}

// logDirs are the places under -data that hold an append-only log.
var logDirs = []string{"journal", "outbox/log", "whatsapp/inbound", "whatsapp/status"}

// repair cuts every damaged log at its damage and keeps a copy of it.
func repair(w io.Writer, data string) error {
	for _, name := range logDirs {
		done, err := appendlog.Repair(filepath.Join(data, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(w, "%s: %s\n", name, done)
	}
	return nil
}

// settings is what contract 4.5 lets an operator choose.
type settings struct {
	addr            string
	platform        string
	sender          string
	data            string
	accounts        string
	newAccount      string
	health          string
	version         bool
	tlsCert         string
	tlsKey          string
	trustedProxies  string
	metricsAddr     string
	maxDelay        time.Duration
	maxMedia        setting.Size
	maxSpool        setting.Size
	maxSends        int
	maxConnections  int
	maxQueueWait    time.Duration
	keyWindow       time.Duration
	maxKeys         int
	repair          bool
	allowMediaFrom  string
	outboxMessages  int
	outboxBytes     setting.Size
	outboxLatency   time.Duration
	outboxFailures  string
	whatsappURL     string
	whatsappVersion string
	whatsappLinks   bool
	shutdownGrace   time.Duration
	log             string

	// What some of the texts above say.
	allow   media.AllowList
	proxies clientaddr.Proxies
	faults  *outbox.Faults
}

// helpGroups orders the settings for -h; every flag stands in one group.
var helpGroups = []setting.Group{
	{Title: "Service", Flags: "addr platform sender data log shutdown-grace"},
	{Title: "Accounts", Flags: "accounts"},
	{Title: "Network", Flags: "tls-cert tls-key trusted-proxies metrics-addr"},
	{Title: "Limits", Flags: "max-delay max-media max-spool allow-media-from max-sends max-connections max-queue-wait"},
	{Title: "Idempotency", Flags: "idempotency-window idempotency-keys"},
	{Title: "Outbox", Flags: "outbox-messages outbox-bytes outbox-latency outbox-failures"},
	{Title: "WhatsApp", Flags: "whatsapp-url whatsapp-version whatsapp-links"},
	{Title: "Instead of serving", Flags: "new-account repair health version"},
}

// flags declares every setting with its default.
func (c *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("messagesender", flag.ContinueOnError)
	c.maxMedia, c.maxSpool, c.outboxBytes = 100<<20, 1<<30, 2<<30
	f.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`host:port` to listen on; port 0: any free one")
	f.StringVar(&c.platform, "platform", "WhatsApp", "the `word` in /message/send<Platform>Audio")
	f.StringVar(&c.sender, "sender", account.Outbox, "`platform` of accounts for which the accounts file names none: outbox or whatsapp")
	f.StringVar(&c.data, "data", "data", "`directory` for the outbox, media on its way and the first-run account")
	f.StringVar(&c.log, "log", "text", "`form` of the log on standard error: text or json")
	f.DurationVar(&c.shutdownGrace, "shutdown-grace", 30*time.Second, "`duration` that holds have to end in after SIGTERM")
	f.StringVar(&c.accounts, "accounts", "", "`file` of accounts, read again on SIGHUP")
	f.StringVar(&c.newAccount, "new-account", "", "print a fresh key, token and accounts-file entry for `name`, and exit")
	f.StringVar(&c.tlsCert, "tls-cert", "", "PEM `file` with the certificate chain: serve HTTPS; read again when it changes")
	f.StringVar(&c.tlsKey, "tls-key", "", "PEM `file` with its private key")
	f.StringVar(&c.trustedProxies, "trusted-proxies", "", "reverse proxies whose X-Forwarded-For is believed, a `list` of addresses and CIDRs with commas between")
	f.StringVar(&c.metricsAddr, "metrics-addr", "", "`host:port` that serves /metrics without a key; otherwise it is here, with one")
	f.StringVar(&c.health, "health", "", "ask `URL`, exit with 0 if the answer is 200 and with 1 otherwise")
	f.BoolVar(&c.version, "version", false, "print the version and exit")
	f.DurationVar(&c.maxDelay, "max-delay", 5*time.Minute, "longest options.delay, a `duration`")
	f.Var(&c.maxMedia, "max-media", "largest media, a `size` in bytes or with KiB, MiB, GiB")
	f.Var(&c.maxSpool, "max-spool", "most media held at once for requests on their way, a `size`")
	f.IntVar(&c.maxSends, "max-sends", 20000, "most sends at once, held ones included, a `number`; beyond it 503")
	f.IntVar(&c.maxConnections, "max-connections", 25000, "most connections at once, a `number`; beyond it 503")
	f.DurationVar(&c.maxQueueWait, "max-queue-wait", 2*time.Minute, "longest wait for a turn behind other messages, a `duration`; beyond it 429")
	f.DurationVar(&c.keyWindow, "idempotency-window", 24*time.Hour, "how long an Idempotency-Key is kept, a `duration`")
	f.IntVar(&c.maxKeys, "idempotency-keys", 1_000_000, "most keys kept, a `number`; beyond it sends with a new key get 503")
	f.BoolVar(&c.repair, "repair", false, "cut damaged logs in -data at the damage, keep a copy of them, and exit")
	f.StringVar(&c.allowMediaFrom, "allow-media-from", "", "what media URLs may reach besides public addresses, a `list` of HOST, HOST:PORT and CIDR with commas between")
	f.IntVar(&c.outboxMessages, "outbox-messages", 10000, "most messages kept, a `number`; the oldest go first")
	f.Var(&c.outboxBytes, "outbox-bytes", "most bytes kept, a `size`; the oldest messages go first")
	f.DurationVar(&c.outboxLatency, "outbox-latency", 0, "`duration` that every delivery into the outbox takes")
	f.StringVar(&c.outboxFailures, "outbox-failures", "", "deliveries that fail by chance, a `list` of CODE=RATE and seed=NUMBER with commas between")
	f.StringVar(&c.whatsappURL, "whatsapp-url", whatsapp.DefaultBaseURL, "where the Cloud API is, a `URL`")
	f.StringVar(&c.whatsappVersion, "whatsapp-version", whatsapp.DefaultVersion, "`version` of the Cloud API")
	f.BoolVar(&c.whatsappLinks, "whatsapp-links", false, "pass media URLs on instead of downloading and uploading")
	return f
}

// commands are the flags that have no environment default.
var commands = []string{"new-account", "repair", "health", "version"}

var platformForm = regexp.MustCompile(`^[A-Za-z0-9]+$`)

// parseSettings reads flags and their environment defaults; an explicit flag wins.
func parseSettings(args []string, getenv func(string) string) (settings, error) {
	var c settings
	if err := setting.Parse(c.flags(), args, getenv, commands...); errors.Is(err, flag.ErrHelp) {
		return c, err
	} else if err != nil {
		return c, usageError{err}
	}
	_, _, badAddr := net.SplitHostPort(c.addr)
	var badAllow, badProxies, badFailures error
	c.allow, badAllow = media.ParseAllow(c.allowMediaFrom)
	c.proxies, badProxies = clientaddr.Parse(c.trustedProxies)
	c.faults, badFailures = outbox.ParseFaults(c.outboxFailures, c.outboxLatency)
	switch {
	case badAddr != nil:
		return c, usagef("-addr must be host:port, not %q", c.addr)
	case badAllow != nil:
		return c, usagef("-allow-media-from: %w", badAllow)
	case badProxies != nil:
		return c, usagef("-trusted-proxies: %w", badProxies)
	case (c.tlsCert == "") != (c.tlsKey == ""):
		return c, usagef("-tls-cert and -tls-key go together; only one of them is set")
	case badFailures != nil:
		return c, usagef("-outbox-failures: %w", badFailures)
	case c.outboxLatency < 0 || c.outboxLatency > time.Minute:
		return c, usagef("-outbox-latency must be from 0 to 1m")
	case !platformForm.MatchString(c.platform):
		return c, usagef("-platform must be letters and digits, not %q", c.platform)
	case c.sender != account.Outbox && c.sender != account.WhatsApp:
		return c, usagef("-sender must be outbox or whatsapp, not %q", c.sender)
	case c.log != "text" && c.log != "json":
		return c, usagef("-log must be text or json, not %q", c.log)
	case c.data == "":
		return c, usagef("-data must name a directory")
	case c.maxDelay < 0:
		return c, usagef("-max-delay must not be negative")
	case c.shutdownGrace < 0:
		return c, usagef("-shutdown-grace must not be negative")
	case c.maxSends < 1 || c.maxConnections < 1 || c.maxKeys < 1:
		return c, usagef("-max-sends, -max-connections and -idempotency-keys must be at least 1")
	case c.maxQueueWait < 0 || c.keyWindow <= 0:
		return c, usagef("-max-queue-wait must not be negative, and -idempotency-window must be longer than 0")
	case c.outboxMessages < 1:
		return c, usagef("-outbox-messages must be at least 1")
	case c.maxSpool < c.maxMedia:
		return c, usagef("-max-spool (%s) must not be less than -max-media (%s)", &c.maxSpool, &c.maxMedia)
	}
	return c, nil
}

func printHelp(w io.Writer) error {
	fmt.Fprint(w, `messagesender sends text, media and voice messages over HTTP.

Started without settings it listens on 127.0.0.1:8080, prints three curl calls
that work, and keeps what is sent in its own outbox: nobody is messaged.

Every setting has an environment default of the same name in capitals
(-max-delay: MAX_DELAY). An explicit flag wins.
`)
	setting.Help(w, new(settings).flags(), helpGroups)
	_, err := fmt.Fprint(w, `
Secrets are never flags. Each is an environment variable, or a file that the
variable with _FILE behind its name names: API_KEY and API_TOKEN make one account
(-accounts names a file with many); WHATSAPP_ACCESS_TOKEN, with
WHATSAPP_PHONE_NUMBER_ID, sends through WhatsApp; WHATSAPP_APP_SECRET and
WHATSAPP_VERIFY_TOKEN take its webhook.
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

// version is what -version prints.
const version = "1.0.0"

// userAgent is how the service names itself to platforms.
const userAgent = "messagesender/" + version

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "messagesender %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// healthTime bounds -health; container runtimes ask every few seconds.
const healthTime = 5 * time.Second

// checkHealth is the health check of a container that has nothing but this
// program. An error is the answer that something is wrong.
func checkHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// A certificate names the public host and not this machine; nothing secret
	// is sent, and nothing but the status is believed.
	response, err := (&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: clientaddr.IsLoopback(r.URL.Host)}}).RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// Limits of the HTTP server.
const (
	readHeaderTime = 5 * time.Second  // a slow header is an attack or a dead peer
	idleTime       = 2 * time.Minute  // a kept-alive connection without a request
	maxHeader      = 16 << 10         // bytes
	closeTime      = 10 * time.Second // for answers already being written at the end

	// HTTP/2, with -tls-cert. A hold is a stream: a client with more of them opens
	// another connection.
	maxStreams = 250
	pingAfter  = 30 * time.Second // of silence; a hold is silent, and its client may have vanished
	pingTime   = 15 * time.Second
)

// serve opens what is needed, serves until ctx ends and drains.
func serve(ctx context.Context, c settings, getenv func(string) string, stdout, stderr io.Writer) error {
	logger := newLogger(c.log, stderr)
	set, firstRun, err := loadAccounts(c, getenv)
	if err != nil {
		return err
	}
	registry := account.NewRegistry(set)
	var certificate *tlscert.Certificate // nil: plain HTTP
	if c.tlsCert != "" {
		if certificate, err = tlscert.Load(c.tlsCert, c.tlsKey, logger); err != nil {
			return usagef("-tls-cert: %w", err)
		}
	}

	m := metrics.New(version)
	// First, because it also keeps a second process out of the directory.
	keys, err := journal.Open(filepath.Join(c.data, "journal"), journal.Options{
		Window: c.keyWindow, MaxKeys: c.maxKeys, Log: logger, Synced: func(took time.Duration, err error) {
			m.JournalSync.Observe(took)
			if err != nil {
				m.JournalSyncFailures.Inc()
			}
		},
	})
	if err != nil {
		return damaged(err)
	}
	defer keys.Close()
	spool, err := media.OpenSpool(filepath.Join(c.data, "spool"), media.Limits{Blob: int64(c.maxMedia), Total: int64(c.maxSpool), Memory: spoolMemory})
	if err != nil {
		return fmt.Errorf("the media spool: %w", err)
	}
	routes, err := openRoutes(c, getenv, set, m, logger)
	if err != nil {
		return damaged(err)
	}
	defer routes.close()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	encoder := media.NewEncoder(work, media.EncoderOptions{Spool: spool})
	go func() {
		if !encoder.Available() {
			logger.Warn("there is no ffmpeg with libopus: options.encoding works for Ogg/Opus only")
		}
	}()

	m.Spool(spool.Used)
	if routes.outbox != nil {
		m.Outbox(func() int64 { return int64(routes.outbox.Count()) }, routes.outbox.Bytes)
	}
	page, err := outbox.NewPage(c.platform)
	if err != nil {
		return err
	}
	description, err := openapi.Document(c.platform, c.maxDelay)
	if err != nil {
		return err
	}
	drain := newDrain(c.maxSends)
	s := &server{
		audioWord: c.platform,
		maxDelay:  c.maxDelay,
		maxMedia:  int64(c.maxMedia),
		accounts:  registry,
		route:     routes.of,
		journal:   keys,
		encoder:   encoder,
		proxies:   c.proxies,
		spool:     spool,
		outbox:    routes.outbox,
		writable:  func() error { return probeWrite(c.data) },
		drain:     drain,
		metrics:   m,
		openapi:   description,
		page:      page,
		log:       logger,
		sender: &presenceSender{
			route: routes.of,
			gatherer: &gatherer{
				fetcher:   media.NewFetcher(media.FetchOptions{Spool: spool, Allow: c.allow}),
				encoder:   encoder,
				downloads: make(chan struct{}, maxDownloads),
			},
			lanes:   lane.New(c.maxQueueWait),
			drain:   drain,
			metrics: m,
			log:     logger,
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
	metricsURL := "" // empty: on the address of everything else
	if c.metricsAddr != "" {
		s.ownMetrics = true
		addr, stop, err := serveMetrics(c.metricsAddr, s)
		if err != nil {
			return err
		}
		defer stop()
		metricsURL = "http://" + addr + "/metrics"
	}
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	connections := &connectionLimit{most: int64(c.maxConnections)}
	web := &http.Server{
		Handler:                      s.routes(),
		ReadHeaderTimeout:            readHeaderTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               maxHeader,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  connections.context,
		ConnState:                    connections.state,
		ErrorLog:                     slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTime, WriteByteTimeout: writeTime},
	}
	failed := make(chan error, 1)
	url := "http://" + listener.Addr().String()
	if certificate != nil {
		web.TLSConfig = certificate.Config()
		url = "https://" + listener.Addr().String()
		go func() { failed <- web.ServeTLS(listener, "", "") }()
	} else {
		go func() { failed <- web.Serve(listener) }()
	}

	fmt.Fprintln(stdout, "listening on", url)
	if metricsURL != "" {
		fmt.Fprintln(stdout, "metrics on", metricsURL)
	}
	if firstRun != nil {
		printFirstRun(stdout, url, c.platform, firstRun)
	}
	logger.Info("started", "addr", listener.Addr().String(), "accounts", len(registry.Accounts()), "sender", c.sender)

	for {
		select {
		case err := <-failed:
			return err
		case <-hangups:
			reload(c, registry, routes, logger)
			continue
		case <-ctx.Done():
		}
		break
	}

	// The listener stays open while holds end, so that new sends are told why
	// they are refused.
	logger.Info("draining", "grace", c.shutdownGrace)
	drain.begin(c.shutdownGrace)
	keys.StopWaiting()
	routes.stopStreams()
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

// serveMetrics serves /metrics, and nothing else, on an address of its own.
func serveMetrics(addr string, s *server) (listening string, stop func(), err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { s.writeMetrics(w) })
	web := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTime, ReadTimeout: readHeaderTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = web.Serve(listener)
	}()
	return listener.Addr().String(), func() { _ = web.Close(); <-ended }, nil
}

// connectionLimit marks the connections beyond a limit, so that they can be told
// and closed instead of taking the memory of requests.
type connectionLimit struct {
	most int64
	open atomic.Int64
}

func (l *connectionLimit) context(ctx context.Context, _ net.Conn) context.Context {
	if l.open.Add(1) > l.most {
		return context.WithValue(ctx, overConnections{}, true)
	}
	return ctx
}

func (l *connectionLimit) state(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		l.open.Add(-1)
	}
}

// damaged adds the way out to the error of a damaged log.
func damaged(err error) error {
	if _, ok := errors.AsType[*appendlog.DamageError](err); ok {
		return fmt.Errorf("%w; run with -repair to cut it there and keep a copy", err)
	}
	return err
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
	key, err := setting.Secret(getenv, "API_KEY")
	if err != nil {
		return account.Set{}, nil, usageError{err}
	}
	token, err := setting.Secret(getenv, "API_TOKEN")
	if err != nil {
		return account.Set{}, nil, usageError{err}
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
	case c.sender != account.Outbox:
		return account.Set{}, nil, usagef("-sender %s needs an account: set API_KEY and API_TOKEN, or -accounts", c.sender)
	case !clientaddr.IsLoopback(host):
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

// reload reads the accounts file again. A file that is not right changes nothing.
func reload(c settings, registry *account.Registry, routes *routes, logger *slog.Logger) {
	if c.accounts == "" {
		logger.Info("nothing to reload: there is no accounts file")
		return
	}
	set, err := account.Load(c.accounts)
	if err == nil {
		err = routes.replace(set)
	}
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
	fmt.Fprintf(w, "See it happen, and write more:\n\n  %s/outbox/#key=%s&token=%s\n\n", url, p.key, p.token)
	fmt.Fprintf(w, "What was sent:\n\n  curl %s/outbox/messages\n\n", url)
}
