// Command bench measures the service side by side with a floor in the same run:
// a bare net/http handler that does the same work the plain way. It builds and
// starts both as processes of their own on loopback and prints a line per figure.
//
//	go run ./bench            all figures
//	go run ./bench text hold  only these
//
// Figures: text and whatsapp (sendText requests/s), hold (memory of a held request), overload
// (goodput and refusals at ten times capacity), base64
// (throughput of 16 MiB media, and peak memory of eight at once).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"
)

// runTime bounds the whole run; nothing here may go on for ever.
const runTime = 5 * time.Minute

type figure struct {
	name    string
	measure func(ctx context.Context, b *bench) error
}

var figures = []figure{
	{"text", measureText},
	{"whatsapp", measureWhatsApp},
	{"hold", measureHold},
	{"overload", measureOverload},
	{"base64", measureBase64},
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-floor" {
		fmt.Fprintln(os.Stderr, serveFloor(os.Args[2]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
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
	fmt.Printf("%s, %s/%s, %d CPUs\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	for _, f := range figures {
		if len(names) > 0 && !slices.Contains(names, f.name) {
			continue
		}
		if err := f.measure(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}
