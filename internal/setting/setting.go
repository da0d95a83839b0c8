// Package setting reads settings: flags that each have an environment default of
// the same name in capitals, and secrets that are never flags.
package setting

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Size is a number of bytes as a flag: 1048576, 512KiB, 100MiB or 2GiB. It is
// never zero or negative once it is set.
type Size int64

var units = []struct {
	name  string
	shift int
}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}, {"", 0}}

func (s *Size) String() string {
	for _, u := range units {
		if n := int64(*s); n != 0 && u.shift > 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// maxSize bounds every size: a pebibyte.
const maxSize = 1 << 50

// Set reads a size.
func (s *Size) Set(text string) error {
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 || n > maxSize>>u.shift {
			break
		}
		*s = Size(n << u.shift)
		return nil
	}
	return errors.New("must be a number of bytes such as 1048576, 512KiB, 100MiB or 2GiB")
}

// EnvironmentName is the variable behind a flag: MAX_DELAY for max-delay.
func EnvironmentName(flagName string) string {
	return strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// Parse reads args into f and, for each flag that they do not name, the
// environment. The flags named in commands have no environment default: they make
// the process do something else than serve, and a variable such as VERSION, which
// many containers have for all that runs in them, must not. An error is one line,
// or flag.ErrHelp.
func Parse(f *flag.FlagSet, args []string, getenv func(string) string, commands ...string) error {
	f.SetOutput(io.Discard) // errors and help are the caller's to print
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is not a setting; settings are flags, see -h", f.Arg(0))
	}
	explicit := map[string]bool{}
	f.Visit(func(set *flag.Flag) { explicit[set.Name] = true })
	var failed error
	f.VisitAll(func(set *flag.Flag) {
		name := EnvironmentName(set.Name)
		value := getenv(name)
		if value == "" || explicit[set.Name] || slices.Contains(commands, set.Name) || failed != nil {
			return
		}
		if err := set.Value.Set(value); err != nil {
			failed = fmt.Errorf("invalid value %q for %s: %w", value, name, err)
		}
	})
	return failed
}

// Group is a part of the help; Flags are names with spaces between them.
type Group struct{ Title, Flags string }

// Help prints the flags of f by groups.
func Help(w io.Writer, f *flag.FlagSet, groups []Group) {
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s\n", g.Title)
		for name := range strings.FieldsSeq(g.Flags) {
			set := f.Lookup(name)
			value, text := flag.UnquoteUsage(set)
			if set.DefValue != "" && set.DefValue != "false" {
				text += " (default " + set.DefValue + ")"
			}
			fmt.Fprintf(w, "  %-28s %s\n", strings.TrimSpace("-"+name+" "+value), text)
		}
	}
}

// maxSecretFile bounds a file that holds one secret, in bytes.
const maxSecretFile = 4096

// Secret reads the environment variable name, or the file that name_FILE names;
// empty: neither is set. No error repeats the secret.
func Secret(getenv func(string) string, name string) (string, error) {
	value, file := getenv(name), getenv(name+"_FILE")
	switch {
	case value != "" && file != "":
		return "", fmt.Errorf("%s and %s_FILE are both set", name, name)
	case file == "":
		return value, nil
	}
	value, err := SecretFile(file)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: %w", name, err)
	}
	return value, nil
}

// SecretFile reads a file that holds one secret, without the end of its line.
func SecretFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" || len(content) > maxSecretFile {
		return "", fmt.Errorf("%s must hold one secret of 1 to %d bytes", path, maxSecretFile)
	}
	return secret, nil
}
