package metrics

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// The reader of the format here follows its description and not the writer:
// https://prometheus.io/docs/instrumenting/exposition_formats/

// scrape is what a reader understands of a text.
type scrape struct {
	kinds   map[string]string  // of each family
	helps   map[string]string  // unescaped
	samples map[string]float64 // by name and labels as they stand: name{a="b"}
	labels  map[string]map[string]string
	order   []string // of samples
}

var (
	nameForm   = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelForm  = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)`)
	unescaping = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\"`, `"`)
)

// parse reads a text; an error names the first line that is wrong.
func parse(text string) (*scrape, error) {
	s := &scrape{map[string]string{}, map[string]string{}, map[string]float64{}, map[string]map[string]string{}, nil}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no end")
	}
	family := ""
	ended := map[string]bool{}
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		wrong := func(what string) (*scrape, error) { return nil, fmt.Errorf("line %d %q: %s", n+1, line, what) }
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			if ended[name] {
				return wrong("the family appears twice")
			}
			ended[family], family = true, name
			s.helps[name] = unescaping.Replace(help)
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if name != family || s.kinds[name] != "" {
				return wrong("a type that does not follow its help")
			}
			s.kinds[name] = kind
			continue
		}
		name := nameForm.FindString(line)
		if name == "" {
			return wrong("no name")
		}
		base := name
		if s.kinds[family] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
		}
		if base != family {
			return wrong("a sample outside of its family")
		}
		rest, id, labels := line[len(name):], name, map[string]string{}
		if strings.HasPrefix(rest, "{") {
			end := strings.LastIndex(rest, "} ")
			if end < 0 {
				return wrong("labels that do not end")
			}
			inside := rest[1:end]
			id += rest[:end+1]
			rest = rest[end+1:]
			for inside != "" {
				m := labelForm.FindStringSubmatch(inside)
				if m == nil {
					return wrong("a label that is none")
				}
				if _, twice := labels[m[1]]; twice {
					return wrong("a label that appears twice")
				}
				labels[m[1]] = unescaping.Replace(m[2])
				inside = inside[len(m[0]):]
			}
		}
		value, err := strconv.ParseFloat(strings.TrimPrefix(rest, " "), 64)
		if err != nil || !strings.HasPrefix(rest, " ") {
			return wrong("a value that is no number")
		}
		if _, twice := s.samples[id]; twice {
			return wrong("a sample that appears twice")
		}
		s.samples[id], s.labels[id] = value, labels
		s.order = append(s.order, id)
	}
	return s, s.checkHistograms()
}

// checkHistograms wants ascending bounds, ascending counts, and +Inf to be the count.
func (s *scrape) checkHistograms() error {
	for name, kind := range s.kinds {
		if kind != "histogram" {
			continue
		}
		bound, count := math.Inf(-1), 0.0
		for _, id := range s.order {
			if !strings.HasPrefix(id, name+"_bucket{") {
				continue
			}
			le, err := strconv.ParseFloat(s.labels[id]["le"], 64)
			if err != nil || le <= bound || s.samples[id] < count {
				return fmt.Errorf("%s: a bucket out of order", id)
			}
			bound, count = le, s.samples[id]
		}
		if !math.IsInf(bound, 1) || count != s.samples[name+"_count"] {
			return fmt.Errorf("%s: the last bucket is %v with %v, want +Inf with the count %v", name, bound, count, s.samples[name+"_count"])
		}
		if _, ok := s.samples[name+"_sum"]; !ok {
			return fmt.Errorf("%s: there is no sum", name)
		}
	}
	return nil
}
