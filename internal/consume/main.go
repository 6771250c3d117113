// Command consume does what README.md tells a new user to do, but with a checkout
// instead of a release. In an empty module it gets the checkout as a module, compiles
// the first example, and shows what that has added to go.mod. It fails if that is
// anything but the module and backoff.
//
//	go run ./internal/consume [toolchain ...]
//
// A toolchain is a value of GOTOOLCHAIN, such as go1.25.0, or "oldest" for the first
// release of the Go version in go.mod. Without one, consume uses the go command in the
// path. Run it in the root of the module.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	version = "v0.1.0-checkout" // only the new module sees it
	backoff = "github.com/cenkalti/backoff/v4"
)

func main() {
	if err := run(os.Stdout, ".", os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "consume:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, root string, toolchains []string) (err error) {
	module, err := readModule(root)
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return err
	}
	path, program, err := instructions(string(readme))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "consume")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	proxy := filepath.Join(dir, "proxy")
	if err := publish(root, proxy, module); err != nil {
		return err
	}

	if len(toolchains) == 0 {
		toolchains = []string{"local"}
	}
	for i, toolchain := range toolchains {
		if toolchain == "oldest" {
			toolchain = firstRelease(module.Go)
		}
		c := consumer{out: out, dir: filepath.Join(dir, fmt.Sprint("module", i)), module: module.Path, path: path, program: program}
		if err := c.prepare(toolchain, proxy, filepath.Join(dir, "cache")); err != nil {
			return err
		}
		if err := c.consume(); err != nil {
			return fmt.Errorf("with %s: %w", toolchain, err)
		}
	}
	return nil
}

// A goMod is what this program needs of a go.mod, in the form of go mod edit -json.
type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		Path     string
		Indirect bool
	}
}

// A moduleInfo names the module of a checkout.
type moduleInfo struct {
	Path string
	Go   string // the Go version in go.mod
}

func readModule(root string) (moduleInfo, error) {
	mod, err := readGoMod("go", root, os.Environ())
	return moduleInfo{mod.Module.Path, mod.Go}, err
}

func readGoMod(goCommand, dir string, env []string) (mod goMod, err error) {
	cmd := exec.Command(goCommand, "mod", "edit", "-json")
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return mod, fmt.Errorf("reading go.mod: %w", err)
	}
	return mod, json.Unmarshal(text, &mod)
}

// firstRelease returns the first toolchain of a Go version: go1.25.0 for 1.25.
func firstRelease(goVersion string) string {
	if strings.Count(goVersion, ".") == 1 {
		goVersion += ".0"
	}
	return "go" + goVersion
}

// instructions returns what README.md says to get, and its first Go example.
func instructions(readme string) (path, program string, err error) {
	get := regexp.MustCompile(`(?m)^go get (\S+)$`).FindStringSubmatch(readme)
	example := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindStringSubmatch(readme)
	if get == nil || example == nil {
		return "", "", errors.New("README.md has no line with go get, or no Go example")
	}
	return get[1], example[1], nil
}

// A consumer is somebody else's module.
type consumer struct {
	out     io.Writer
	dir     string
	module  string // that it uses
	path    string // of a package of that module
	program string // that it consists of

	goCommand string
	env       []string
}

// prepare makes the empty directory, and the environment for go commands. In it
// toolchain gets the module from proxy, and everything else from the user's own module
// cache or from where the user gets modules.
func (c *consumer) prepare(toolchain, proxy, cache string) error {
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return err
	}
	own := map[string]string{}
	for _, name := range []string{"GOMODCACHE", "GOPROXY", "GONOSUMDB", "GOROOT"} {
		cmd := exec.Command("go", "env", name)
		cmd.Dir, cmd.Stderr = c.dir, os.Stderr
		cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+toolchain)
		value, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("asking %s for its environment: %w", toolchain, err)
		}
		own[name] = strings.TrimSpace(string(value))
	}
	// Use the toolchain's own command: with another module cache, go would install the
	// toolchain again.
	c.goCommand = filepath.Join(own["GOROOT"], "bin", "go")
	c.env = append(os.Environ(),
		"GOTOOLCHAIN=local",
		"GOROOT=",
		"GOWORK=off",
		"GOFLAGS=-modcacherw", // so that the cache can be removed
		// It needs its own cache because the next checkout has the same version.
		"GOMODCACHE="+cache,
		"GOPROXY="+strings.Join([]string{fileURL(proxy), fileURL(own["GOMODCACHE"], "cache", "download"), own["GOPROXY"]}, ","),
		"GOPRIVATE=", "GONOPROXY=", // these would bypass the proxies
		// Checksum databases do not know the checkout.
		"GONOSUMDB="+strings.Trim(own["GONOSUMDB"]+","+c.module, ","),
	)
	return nil
}

func fileURL(path ...string) string {
	p := filepath.ToSlash(filepath.Join(path...))
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // a drive
	}
	return (&url.URL{Scheme: "file", Path: p}).String()
}

func (c *consumer) consume() error {
	for _, args := range [][]string{
		{"version"},
		{"mod", "init", "example.com/consumer"},
		{"get", c.path + "@" + version},
	} {
		if err := c.run(args...); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "main.go"), []byte(c.program), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"build", "-o", os.DevNull, "."},
		{"mod", "tidy"},
	} {
		if err := c.run(args...); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "go.mod"))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "$ cat go.mod\n%s\n", bytes.TrimSpace(text))
	mod, err := readGoMod(c.goCommand, c.dir, c.env)
	if err != nil {
		return err
	}
	return checkRequirements(mod, c.module)
}

// run shows and runs a go command.
func (c *consumer) run(args ...string) error {
	fmt.Fprintln(c.out, "$ go", strings.Join(args, " "))
	cmd := exec.Command(c.goCommand, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, c.out, c.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil
}

// checkRequirements returns an error unless mod requires the module and, behind it,
// backoff, and nothing else.
func checkRequirements(mod goMod, module string) error {
	var got []string
	for _, r := range mod.Require {
		name := r.Path
		if r.Indirect {
			name += " // indirect"
		}
		got = append(got, name)
	}
	want := []string{module, backoff + " // indirect"}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("go.mod requires %q, want %q", got, want)
	}
	return nil
}
