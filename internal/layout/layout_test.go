package layout_test

import (
	"encoding/json"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

const (
	root    = "../.."
	module  = "github.com/reprise-sse/reprise"
	backoff = "github.com/cenkalti/backoff/v4"
)

// Why each public package needs what it needs:
//
//   - clock and policy know neither each other nor the engine, so a policy is a
//     table of plain values, and a clock serves anything.
//   - backoff stays behind policy; the engine has only the standard library and
//     its two siblings.
//   - eventsourcetest does not know the engine, so that the engine's own tests,
//     and those of any other client, can use it.
//   - an example shows what a user can do, so it uses nothing internal.
var want = []struct {
	name    string
	imports []string // direct, outside the standard library
	deps    []string // all, outside the standard library, itself left out
}{
	{"clock", nil, nil},
	{"policy", []string{backoff}, []string{backoff}},
	{
		"eventsource",
		[]string{module + "/clock", module + "/policy"},
		[]string{module + "/clock", backoff, module + "/policy"},
	},
	{
		"eventsource/eventsourcetest",
		[]string{module + "/clock", module + "/internal/memnet", module + "/internal/selfsigned"},
		[]string{module + "/clock", module + "/internal/memnet", module + "/internal/selfsigned"},
	},
	{
		"examples/tail",
		[]string{module + "/eventsource", module + "/policy"},
		[]string{module + "/clock", backoff, module + "/policy", module + "/eventsource"},
	},
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// readModule reads the directories of the module. What a subprocess reads go test
// does not see: it would take a result from its cache after a change.
var readModule = sync.OnceValue(func() error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
})

// goCommand returns what the go command prints when run in the module's root.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	if err := readModule(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return string(out)
}

func TestImports(t *testing.T) {
	standard := map[string]bool{}
	for _, p := range strings.Fields(goCommand(t, "list", "std")) {
		standard[p] = true
	}
	for _, tt := range want {
		t.Run(tt.name, func(t *testing.T) {
			var imports []string
			for _, p := range strings.Fields(goCommand(t, "list", "-f", "{{join .Imports \"\\n\"}}", "./"+tt.name)) {
				if !standard[p] {
					imports = append(imports, p)
				}
			}
			if diff := cmp.Diff(tt.imports, imports, cmp.Transformer("set", set)); diff != "" {
				t.Errorf("imports (-want +got):\n%s", diff)
			}
			var deps []string
			for _, p := range strings.Fields(goCommand(t, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./"+tt.name)) {
				if p != module+"/"+tt.name {
					deps = append(deps, p)
				}
			}
			if diff := cmp.Diff(tt.deps, deps, cmp.Transformer("set", set)); diff != "" {
				t.Errorf("dependencies (-want +got):\n%s", diff)
			}
		})
	}
}

// Every package that a user can import, or run, stands in the table.
func TestPublicPackages(t *testing.T) {
	var listed, got []string
	for _, tt := range want {
		listed = append(listed, module+"/"+tt.name)
	}
	for _, p := range strings.Fields(goCommand(t, "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", "./...")) {
		if !strings.Contains(p, "/internal/") {
			got = append(got, p)
		}
	}
	if diff := cmp.Diff(listed, got, cmp.Transformer("set", set)); diff != "" {
		t.Errorf("public packages (-want +got):\n%s", diff)
	}
}

func set(list []string) map[string]bool {
	m := map[string]bool{}
	for _, s := range list {
		m[s] = true
	}
	return m
}

// Who requires this module requires three others, two of them for its tests.
func TestRequirements(t *testing.T) {
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal([]byte(goCommand(t, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range mod.Require {
		got = append(got, r.Path)
	}
	want := []string{backoff, "github.com/google/go-cmp", "go.uber.org/goleak"}
	if diff := cmp.Diff(want, got, cmp.Transformer("set", set)); diff != "" {
		t.Errorf("requirements (-want +got):\n%s", diff)
	}
}
