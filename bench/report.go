package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is one figure of the report: several measurements of the service, and of
// its floor where it has one.
type row struct {
	what    string
	unit    string
	service []float64
	floor   []float64 // empty: there is nothing to compare with
	against string    // what the floor is
	goal    float64   // of the ratio, or of the median where there is no floor; 0: none
	most    bool      // the goal is an upper bound
	note    string
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// ratio is the service's median over the floor's.
func (r row) ratio() float64 { return median(r.service) / median(r.floor) }

// value is what the goal is about.
func (r row) value() float64 {
	if len(r.floor) > 0 {
		return r.ratio()
	}
	return median(r.service)
}

func (r row) reached() bool {
	if r.most {
		return r.value() <= r.goal
	}
	return r.value() >= r.goal
}

func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func spread(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	if len(values) == 1 {
		return number(values[0])
	}
	return fmt.Sprintf("%s (%s – %s)", number(median(values)), number(slices.Min(values)), number(slices.Max(values)))
}

// report is everything that one run has found.
type report struct {
	machine string
	took    time.Duration
	rows    []row
}

func (r report) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "%s. Measured in %v; median (least – most) of the rounds.\n\n", r.machine, r.took)
	fmt.Fprintln(w, "| figure | unit | service | floor | ratio | goal | |\n|---|---|---|---|---|---|---|")
	for _, row := range r.rows {
		ratio, goal, reached := "–", "–", ""
		if len(row.floor) > 0 {
			ratio = fmt.Sprintf("%.2f", row.ratio())
		}
		if row.goal != 0 {
			sign := "≥ "
			if row.most {
				sign = "≤ "
			}
			goal = sign + number(row.goal)
			if reached = "reached"; !row.reached() {
				reached = "not reached"
			}
		}
		floor := spread(row.floor)
		if row.against != "" {
			floor += ", " + row.against
		}
		if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", row.what, row.unit, spread(row.service), floor, ratio, goal, reached); err != nil {
			return err
		}
	}
	for _, row := range r.rows {
		if row.note != "" {
			fmt.Fprintf(w, "\n%s: %s.\n", row.what, row.note)
		}
	}
	return nil
}

func (r report) writeFiles(directory string) error {
	var table strings.Builder
	fmt.Fprint(&table, `# Benchmarks

Written by `+"`go run ./bench -write docs`"+`: the service beside a floor, a bare net/http
program that does the same work the plain way, in the same run, on one machine whose
processors both share with the load. So the ratios mean more than the rates.

`)
	if err := r.writeTable(&table); err != nil {
		return err
	}
	fmt.Fprint(&table, "\n![The ratios and their goals](benchmarks.svg)\n")
	if err := os.WriteFile(filepath.Join(directory, "benchmarks.md"), []byte(table.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "benchmarks.svg"), []byte(r.plot()), 0o644)
}

// plot draws every ratio as a bar, with its goal as a line across it.
func (r report) plot() string {
	const width, left, barHeight, step = 760, 330, 16, 30
	rows := slices.DeleteFunc(slices.Clone(r.rows), func(row row) bool { return len(row.floor) == 0 })
	most := 1.0
	for _, row := range rows {
		most = max(most, row.ratio(), row.goal)
	}
	x := func(v float64) float64 { return left + v/most*(width-left-60) }
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="Ratios to the floor and their goals">`+"\n", width, 50+step*len(rows))
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" fill="#fff"/><text x="12" y="22" fill="#555">ratio to the floor (bar), goal (line)</text>`+"\n")
	for i, row := range rows {
		y := float64(40 + step*i)
		colour := "#2e7d5b"
		if row.goal != 0 && !row.reached() {
			colour = "#b4690e"
		}
		fmt.Fprintf(&svg, `<text x="%d" y="%.0f" text-anchor="end" fill="#222">%s</text>`, left-10, y+13, escape(row.what))
		fmt.Fprintf(&svg, `<rect x="%d" y="%.0f" width="%.1f" height="%d" rx="2" fill="%s"/>`, left, y, x(row.ratio())-left, barHeight, colour)
		fmt.Fprintf(&svg, `<text x="%.1f" y="%.0f" fill="#222">%.2f</text>`, x(max(row.ratio(), row.goal))+8, y+13, row.ratio())
		if row.goal != 0 {
			fmt.Fprintf(&svg, `<line x1="%.1f" x2="%.1f" y1="%.0f" y2="%.0f" stroke="#222" stroke-width="2"/>`, x(row.goal), x(row.goal), y-3, y+barHeight+3)
		}
		svg.WriteString("\n")
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// machine is what the figures were measured on, without its name.
func machine(ctx context.Context) string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	commit := "unknown commit"
	if out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = "commit " + strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%s, %d of its processors, %s, %s, %s", model, runtime.NumCPU(), runtime.GOOS, runtime.Version(), commit)
}
