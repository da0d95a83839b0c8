package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// errStatus is any answer but a 200.
var errStatus = errors.New("the answer is")

// client is one keep-alive connection that does as little as a client can, so
// that on a small machine it is the server that is measured.
type client struct {
	conn   net.Conn
	reader *bufio.Reader
	buffer []byte
	key    string // Idempotency-Key; empty: none
}

func dial(addr string) (*client, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, reader: bufio.NewReader(conn)}, nil
}

// post sends one request and reads the answer, which must be a 200.
func (c *client) post(path string, head int, body ...[]byte) error {
	c.buffer = append(c.buffer[:0], "POST "...)
	c.buffer = append(c.buffer, path...)
	c.buffer = append(c.buffer, " HTTP/1.1\r\nHost: bench\r\napikey: "+benchKey+"\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.buffer = strconv.AppendInt(c.buffer, int64(head), 10)
	if c.key != "" {
		c.buffer = append(c.buffer, "\r\nIdempotency-Key: "+c.key...)
	}
	c.buffer = append(c.buffer, "\r\n\r\n"...)
	for _, part := range body {
		if len(part) < 4<<10 {
			c.buffer = append(c.buffer, part...)
			continue
		}
		if _, err := c.conn.Write(c.buffer); err != nil {
			return err
		}
		c.buffer = c.buffer[:0]
		if _, err := c.conn.Write(part); err != nil {
			return err
		}
	}
	if _, err := c.conn.Write(c.buffer); err != nil {
		return err
	}
	answer, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%w %s: %s", errStatus, answer.Status, text)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

func textBody(number int, options string) []byte {
	return fmt.Appendf(nil, `{"number":"%d","options":{%s},"textMessage":{"text":"Your parcel is on its way and arrives tomorrow."}}`, number, options)
}

// rate is what a load run found.
type rate struct {
	perSecond float64
	p99       time.Duration
	cpu       time.Duration // of the server, for each request
}

// load keeps connections busy with sendText, each to numbers of its own.
type load struct {
	connections int
	length      time.Duration
	keyed       bool // each request has an Idempotency-Key of its own
}

func (l load) run(ctx context.Context, p *process) (rate, error) {
	ctx, cancel := context.WithTimeout(ctx, l.length)
	defer cancel()
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		all   []time.Duration
		first atomic.Pointer[error]
	)
	before, err := p.cpu()
	if err != nil {
		return rate{}, err
	}
	begin := time.Now()
	for i := range l.connections {
		wait.Go(func() {
			c, err := dial(p.addr)
			if err != nil {
				first.CompareAndSwap(nil, &err)
				return
			}
			defer c.conn.Close()
			var took []time.Duration
			for n := 0; ctx.Err() == nil; n++ {
				body := textBody(1_000_000_000+i*10_000_000+n, "")
				if l.keyed {
					c.key = fmt.Sprintf("%d-%d-%d", begin.UnixNano(), i, n)
				}
				start := time.Now()
				if err := c.post("/message/sendText/"+benchToken, len(body), body); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				took = append(took, time.Since(start))
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	wait.Wait()
	if err := first.Load(); err != nil {
		return rate{}, *err
	}
	took := time.Since(begin)
	after, err := p.cpu()
	slices.Sort(all)
	return rate{float64(len(all)) / took.Seconds(), all[len(all)*99/100], (after - before) / time.Duration(len(all))}, err
}
