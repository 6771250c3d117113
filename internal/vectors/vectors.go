// Package vectors loads the conformance vectors: byte streams and server scripts
// with the answers that the standard, the web platform tests or a real browser
// give to them. testdata/README.md explains the files.
//
// It is for tests. Loading is strict: a key or a word that this package does not know is
// an error, because a test that ignores it might pass for the wrong reason.
package vectors

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

//go:embed testdata
var files embed.FS

// An Event is an event as a vector expects it.
type Event struct {
	// Connection counts from 0; the vectors of wpt.jsonl leave it at 0.
	Connection int

	Type, Data, LastEventID string
}

// lines calls decode with every line of a file, which may be compressed, and adds the
// file and the line to its errors.
func lines(name string, decode func([]byte) error) error {
	f, err := files.Open("testdata/" + name)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("vectors: %s: %w", name, err)
		}
	}
	buf := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := buf.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := decode(line); err != nil {
				return fmt.Errorf("vectors: %s, line %d: %w", name, n, err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("vectors: %s, line %d: %w", name, n, err)
		}
	}
}

// strict decodes JSON and refuses keys that the type does not have.
func strict(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// oneOf returns an error for a word that is not one of the known ones.
func oneOf(key, word string, known ...string) error {
	if !slices.Contains(known, word) {
		return fmt.Errorf("%s is %q, which is none of %q", key, word, known)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// load returns a function that reads its file once.
func load[T any](name string, decode func([]byte, *[]T) error) func() ([]T, error) {
	return sync.OnceValues(func() ([]T, error) {
		var all []T
		err := lines(name, func(line []byte) error { return decode(line, &all) })
		return all, err
	})
}
