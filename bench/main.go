// Command bench measures the service side by side with a floor in the same run:
// a bare net/http program that does the same work the plain way. It builds and
// starts both as processes of their own, on loopback, and ends within five
// minutes.
//
//	go run ./bench                       all figures, on standard output
//	go run ./bench text hold             only these
//	go run ./bench -write docs           all figures, into docs/benchmarks.md and docs/benchmarks.svg
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"
)

// runTime bounds the whole run; nothing here may go on for ever.
const runTime = 5 * time.Minute

// figure is one thing that is measured; it makes one row or more.
type figure struct {
	name    string
	measure func(ctx context.Context, b *bench) ([]row, error)
}

var figures = []figure{
	{"start", measureStart},
	{"text", measureText},
	{"keys", measureKeys},
	{"whatsapp", measureWhatsApp},
	{"base64", measureBase64},
	{"url", measureURL},
	{"hold", measureHold},
	{"overload", measureOverload},
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-floor" {
		fmt.Fprintln(os.Stderr, serveFloor(os.Args[2]))
		os.Exit(1)
	}
	write := flag.String("write", "", "write the report into this `directory`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	if err := run(ctx, flag.Args(), *write); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string, directory string) error {
	for _, name := range names {
		if !slices.ContainsFunc(figures, func(f figure) bool { return f.name == name }) {
			return fmt.Errorf("%q is not a figure", name)
		}
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	begin := time.Now()
	var rows []row
	for _, f := range figures {
		if len(names) > 0 && !slices.Contains(names, f.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring", f.name)
		more, err := f.measure(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		rows = append(rows, more...)
	}
	r := report{machine: machine(ctx), took: time.Since(begin).Round(time.Second), rows: rows}
	if directory == "" {
		return r.writeTable(os.Stdout)
	}
	return r.writeFiles(directory)
}
