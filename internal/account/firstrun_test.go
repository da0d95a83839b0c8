package account

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFirstRunKeepsItsPair(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	key, token, created, err := FirstRun(dir)
	if err != nil || !created {
		t.Fatalf("first start: got created %t, error %v, want true and none", created, err)
	}
	key2, token2, created, err := FirstRun(dir)
	if err != nil || created || key2 != key || token2 != token {
		t.Errorf("second start: got the same pair %t, created %t, error %v", key2 == key && token2 == token, created, err)
	}
	s, err := FromSecrets("default", key, token)
	if err != nil {
		t.Fatalf("FromSecrets of the pair: %v", err)
	}
	if _, ok := NewRegistry(s).Authenticate(token, key); !ok {
		t.Error("the pair does not authenticate")
	}

	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "first-run.json"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: got mode %04o, want %04o", filepath.Base(path), got, want)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("got %d files, error %v, want first-run.json alone", len(names), err)
	}
}

func TestFirstRunLeavesTheModeOfAnExistingDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, created, err := FirstRun(dir); err != nil || !created {
		t.Fatalf("got created %t, error %v, want true and none", created, err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("got mode %v, error %v, want 0755", info.Mode(), err)
	}
}

func TestFirstRunRefusesAnUnsafeMode(t *testing.T) {
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o644, 0o601} {
		dir := t.TempDir()
		path := filepath.Join(dir, "first-run.json")
		key, token, _, err := FirstRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		gotKey, gotToken, created, err := FirstRun(dir)
		want := fmt.Sprintf("%s holds secrets and is open to others (mode %04o); run: chmod 600 %s (or delete it to have new secrets made)", path, mode, path)
		if err == nil || err.Error() != want {
			t.Errorf("mode %04o: got error %v, want %q", mode, err, want)
		}
		if gotKey != "" || gotToken != "" || created {
			t.Errorf("mode %04o: got a pair with the error, want none", mode)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if gotKey, gotToken, _, err = FirstRun(dir); err != nil || gotKey != key || gotToken != token {
			t.Errorf("mode %04o, after chmod 600: got error %v, want the pair again", mode, err)
		}
	}
}

func TestFirstRunRefusesWrongContent(t *testing.T) {
	const good = `"key": "0123456789abcdef", "token": "0123456789ABCDEF"`
	for name, c := range map[string]struct{ file, want string }{
		"empty":            {``, `line 1, column 1: the body is empty`},
		"cut off":          {`{"key": "` + canary, `line 1, column 35: the body ends early`},
		"unknown field":    {`{` + good + `, "` + canary + `": 1}`, `unknown field; the fields here are: key, token`},
		"key twice":        {`{` + good + `, "key": "` + canary + `"}`, `line 1, column 58: duplicate key`},
		"no key":           {`{"token": "` + canary + `"}`, `the key must have at least 16 characters`},
		"no token":         {`{"key": "` + canary + `"}`, `the token must have at least 16 characters`},
		"token not a path": {`{"key": "` + canary + `", "token": "` + canary + `/x"}`, `the token must consist of A-Z a-z 0-9 _ -`},
		"key a number":     {`{"key": 1234567890123456, "token": "` + canary + `"}`, `key must be a string`},
		"too large":        {`{` + good + `}` + strings.Repeat(" ", maxFirstRun), `larger than 4096 bytes`},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "first-run.json")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, created, err := FirstRun(dir)
		want := path + ": " + c.want + "; delete it to have new secrets made"
		if err == nil || err.Error() != want || created {
			t.Errorf("%s: got created %t, error %v, want %q", name, created, err, want)
		}
		if kept, err := os.ReadFile(path); err != nil || string(kept) != c.file {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestFirstRunFailsWhereItCannotWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if key, _, created, err := FirstRun(dir); err == nil || key != "" || created {
		t.Errorf("dir is a file: got created %t, error %v, want an error and no pair", created, err)
	}
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "first-run.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := FirstRun(dir); err == nil || !strings.HasSuffix(err.Error(), "first-run.json is not a regular file") {
		t.Errorf("file is a directory: got error %v, want one that says so", err)
	}
}
