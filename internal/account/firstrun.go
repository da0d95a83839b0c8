package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	firstRunFile = "first-run.json"
	// maxFirstRun is the size limit of that file, in bytes.
	maxFirstRun = 4 << 10
)

// firstRun is the content of the file. It alone holds secrets themselves: a
// restart has to be able to print them again.
type firstRun struct {
	Key   string `json:"key"`
	Token string `json:"token"`
}

// FirstRun returns the key and token that a process without accounts goes by
// (contract 4.4). They come from first-run.json in dir; if there is none, they
// are generated, kept there with mode 0600, and created is true. dir is made
// with mode 0700 if need be; the mode of one that exists is left alone.
//
// A file that group or others have any access to is refused, as is one that
// does not hold a proper pair: neither is repaired, because a pair that somebody
// else may know or have put there must not be used. Errors name the file and
// what to do, and never a secret.
//
// The file is there completely or not at all, also after a power cut. Two
// processes that start for the first time in the same dir at the same moment
// may both create a pair, and one of them is lost with the next restart.
func FirstRun(dir string) (key, token string, created bool, err error) {
	path := filepath.Join(dir, firstRunFile)
	pair, err := readFirstRun(path)
	if errors.Is(err, fs.ErrNotExist) {
		pair.Key, pair.Token = Generate()
		created = true
		err = writeFirstRun(path, pair)
	}
	if err != nil {
		return "", "", false, err
	}
	return pair.Key, pair.Token, created, nil
}

func readFirstRun(path string) (firstRun, error) {
	f, err := os.Open(path)
	if err != nil {
		return firstRun{}, err
	}
	defer f.Close()
	info, err := f.Stat() // of what is open, so that it cannot be swapped in between
	if err != nil {
		return firstRun{}, err
	}
	if !info.Mode().IsRegular() {
		return firstRun{}, fmt.Errorf("%s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return firstRun{}, fmt.Errorf("%s holds secrets and is open to others (mode %04o); "+
			"run: chmod 600 %s (or delete it to have new secrets made)", path, mode, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFirstRun+1))
	if err != nil {
		return firstRun{}, err
	}
	pair, err := parseFirstRun(data)
	if err != nil {
		return firstRun{}, fmt.Errorf("%s: %w; delete it to have new secrets made", path, err)
	}
	return pair, nil
}

func parseFirstRun(data []byte) (firstRun, error) {
	f, err := parseDocument(data, maxFirstRun, "key", "token")
	if err != nil {
		return firstRun{}, err
	}
	var pair firstRun
	if pair.Key, _, err = f.text("key"); err != nil {
		return firstRun{}, err
	}
	if pair.Token, _, err = f.text("token"); err != nil {
		return firstRun{}, err
	}
	return pair, checkSecrets(pair.Key, pair.Token)
}

// writeFirstRun writes pair to a file of another name and renames that.
func writeFirstRun(path string, pair firstRun) (err error) {
	data, err := json.Marshal(pair)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, firstRunFile+".*.tmp") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the error at hand says more
		}
	}()
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		// Without it a power cut after the rename may leave an empty file.
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
