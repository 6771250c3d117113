package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestArchive(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{
		"go.mod", "a.go", "sub/b.go", "sub/testdata/x",
		".git/config", ".tools/tool.go", ".gitignore", "sub/.hidden",
		"nested/go.mod", "nested/c.go", "nested/deep/d.go",
		"node_modules/e.go", "sub/vendor/f.go",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("content of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.go", filepath.Join(root, "link.go")); err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	if err := archive(&b, root, "example.com/m@v1.0.0"); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		got[f.Name] = string(content)
	}
	want := map[string]string{
		"example.com/m@v1.0.0/go.mod":         "content of go.mod",
		"example.com/m@v1.0.0/a.go":           "content of a.go",
		"example.com/m@v1.0.0/sub/b.go":       "content of sub/b.go",
		"example.com/m@v1.0.0/sub/testdata/x": "content of sub/testdata/x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestCheckRequirements(t *testing.T) {
	const module = `{"Path": "example.com/m"}`
	const back = `{"Path": "github.com/cenkalti/backoff/v4", "Indirect": true}`
	for _, tt := range []struct {
		name, require string
		ok            bool
	}{
		{"the module and backoff", module + "," + back, true},
		{"in another order", back + "," + module, true},
		{"one more", module + "," + back + `,{"Path": "example.com/other", "Indirect": true}`, false},
		{"backoff, directly", module + `,{"Path": "github.com/cenkalti/backoff/v4"}`, false},
		{"nothing was got", "", false},
	} {
		var mod goMod
		if err := json.Unmarshal([]byte(`{"Require": [`+tt.require+`]}`), &mod); err != nil {
			t.Fatal(err)
		}
		if err := checkRequirements(mod, "example.com/m"); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestInstructions(t *testing.T) {
	const readme = "# M\n\n```\ngo get example.com/m/p\n```\n\n```go\npackage main\n```\n\n```go\nmore\n```\n"
	path, program, err := instructions(readme)
	if path != "example.com/m/p" || program != "package main\n" || err != nil {
		t.Errorf("instructions = %q, %q, %v", path, program, err)
	}
	for _, missing := range []string{"go get", "```go"} {
		if _, _, err := instructions(strings.ReplaceAll(readme, missing, "")); err == nil {
			t.Errorf("no error for a README.md without %s", missing)
		}
	}
}

func TestFirstRelease(t *testing.T) {
	for goVersion, want := range map[string]string{"1.25": "go1.25.0", "1.25.3": "go1.25.3"} {
		if got := firstRelease(goVersion); got != want {
			t.Errorf("firstRelease(%q) = %q, want %q", goVersion, got, want)
		}
	}
}
