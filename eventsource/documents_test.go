package eventsource_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A repository is what documents can name.
type repository struct {
	root    string
	top     map[string]bool // directories in root
	tests   map[string]bool // and benchmarks, examples and fuzz targets, of every module
	targets map[string]bool // of the Makefile
	code    string          // all Go code, its indentation removed

	// symbols has the exported names of the public packages as package.Name and
	// package.Type.Member, and also without the package.
	symbols map[string]bool
}

func newRepository(t *testing.T, root string) *repository {
	t.Helper()
	r := &repository{root: root, top: map[string]bool{}, tests: map[string]bool{}, targets: map[string]bool{}, symbols: map[string]bool{}}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			r.top[e.Name()] = true
		}
	}
	var code strings.Builder
	functions := goFiles{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."), d.Name() == "node_modules":
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		code.WriteString(unindented(string(text)))
		if strings.HasSuffix(path, "_test.go") {
			for name := range functions.functions(t, path) {
				r.tests[name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.code = code.String()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		r.targets[m[1]] = true
	}
	for _, dir := range []string{"clock", "policy", "eventsource", "eventsource/eventsourcetest"} {
		r.addSymbols(t, dir)
	}
	return r
}

// addSymbols adds the exported names of the package in dir.
func (r *repository) addSymbols(t *testing.T, dir string) {
	t.Helper()
	add := func(name string) {
		r.symbols[filepath.Base(dir)+"."+name] = true
		r.symbols[name] = true
	}
	files, err := filepath.Glob(filepath.Join(r.root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				add(functionName(decl))
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(name.Name)
						}
					case *ast.TypeSpec:
						add(spec.Name.Name)
						for _, member := range membersOf(spec.Type) {
							add(spec.Name.Name + "." + member)
						}
					}
				}
			}
		}
	}
}

// membersOf returns the fields of a struct, or the methods of an interface.
func membersOf(typ ast.Expr) (names []string) {
	var list *ast.FieldList
	switch typ := typ.(type) {
	case *ast.StructType:
		list = typ.Fields
	case *ast.InterfaceType:
		list = typ.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// unindented returns text without the white space at the ends of its lines.
func unindented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}

var (
	aTest   = regexp.MustCompile(`^(?:[\w/.]+:)?((?:Test|Fuzz|Benchmark|Example)(?:[A-Z_]\w*)?)(…?)(?:/.*)?$`)
	aSymbol = regexp.MustCompile(`^(?:(?:clock|policy|eventsource|eventsourcetest)\.[A-Z]\w*(?:\.[A-Z]\w*)?|Err[A-Z]\w*)$`)
	aMember = regexp.MustCompile(`^([A-Z]\w*)\.[A-Z]\w*$`)
	aTarget = regexp.MustCompile(`^make ([a-z-]+)`)
	aPath   = regexp.MustCompile(`^([\w-]+)/[\w./-]+$`)
	aFence  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	aSpan   = regexp.MustCompile("`([^`\n]+)`")
	aLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	aTitle  = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// missing returns what is wrong with a code span: that it names something of this
// repository that is not there. It is empty if all is well, or if span names nothing
// of the kind.
func (r *repository) missing(span string) string {
	if m := aTest.FindStringSubmatch(span); m != nil {
		if m[2] == "" {
			if !r.tests[m[1]] {
				return "there is no " + m[1]
			}
			return ""
		}
		for name := range r.tests {
			if strings.HasPrefix(name, m[1]) {
				return ""
			}
		}
		return "there is no test " + m[1] + "…"
	}
	if m := aMember.FindStringSubmatch(span); aSymbol.MatchString(span) || m != nil && r.symbols[m[1]] {
		if !r.symbols[span] {
			return "there is no " + span
		}
		return ""
	}
	if m := aTarget.FindStringSubmatch(span); m != nil && !r.targets[m[1]] {
		return "there is no make " + m[1]
	}
	if m := aPath.FindStringSubmatch(span); m != nil && r.top[m[1]] {
		if _, err := os.Stat(filepath.Join(r.root, filepath.FromSlash(span))); err != nil {
			return "there is no " + span
		}
	}
	return ""
}

// brokenLink returns what is wrong with a link in file; empty if it leads somewhere, or
// out of the repository.
func (r *repository) brokenLink(file, link string) string {
	if strings.Contains(link, "://") {
		return ""
	}
	path, anchor, _ := strings.Cut(link, "#")
	target := file
	if path != "" {
		target = filepath.Join(filepath.Dir(file), filepath.FromSlash(path))
	}
	if _, err := os.Stat(target); err != nil {
		return "it leads nowhere"
	}
	if anchor == "" {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err.Error()
	}
	for _, m := range aTitle.FindAllStringSubmatch(string(text), -1) {
		// As GitHub makes anchors of titles.
		slug := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		if regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(slug, "") == anchor {
			return ""
		}
	}
	return "there is no title for it"
}

// What the documents link to and name exists, and their Go code is code of the
// repository, which is compiled and run.
func TestDocuments(t *testing.T) {
	r := newRepository(t, "..")
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../README.md", "../CHANGELOG.md", "../CONTRIBUTING.md")
	links, names, blocks := 0, 0, 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, m := range aFence.FindAllStringSubmatch(text, -1) {
			switch language, code := m[1], m[2]; language {
			case "go":
				blocks++
				// That of README.md is looked at by the tests of its own.
				if !strings.Contains(r.code, unindented(code)) && filepath.Base(file) != "README.md" {
					t.Errorf("%s: this code is nowhere else:\n%s", file, code)
				}
			case "", "sh":
				for line := range strings.Lines(code) {
					if what := r.missing(strings.TrimSpace(line)); what != "" {
						t.Errorf("%s: %s", file, what)
					}
				}
			}
		}
		text = aFence.ReplaceAllString(text, "")
		for _, m := range aLink.FindAllStringSubmatch(text, -1) {
			links++
			if what := r.brokenLink(file, m[1]); what != "" {
				t.Errorf("%s: the link to %s: %s", file, m[1], what)
			}
		}
		if filepath.Base(file) == "migrating.md" {
			// The first column is about other clients.
			text = regexp.MustCompile(`(?m)^\|[^|]*\|`).ReplaceAllString(text, "|")
		}
		for _, m := range aSpan.FindAllStringSubmatch(text, -1) {
			names++
			if what := r.missing(m[1]); what != "" {
				t.Errorf("%s: %s", file, what)
			}
		}
	}
	if links < 20 || names < 500 || blocks < 15 {
		t.Errorf("%d links, %d names, %d blocks of code: the documents were not read", links, names, blocks)
	}
}

// The check of the documents finds what is not there.
func TestDocumentsFinds(t *testing.T) {
	r := newRepository(t, "..")
	for _, tt := range []struct {
		span    string
		missing bool
	}{
		{"TestDocuments", false},
		{"eventsource:TestDocuments", false},
		{"TestDocumentz", true},
		{"TestDocu…", false},
		{"TestNothingLikeThat…", true},
		{"ExampleGet", false},
		{"Example", false},
		{"ExampleGot", true},
		{"policy.Rules", false},
		{"policy.Rules.Delay", false},
		{"policy.Rule", true},
		{"eventsource.Rules", true},
		{"Rules.Delay", false},
		{"Rules.Delai", true},
		{"Reconnector.Next", false},
		{"Decoder.Next", false},
		{"Decoder.next", false}, // nothing that a user could look up
		{"Request.GetBody", true},
		{"Transport.Proxy", false}, // not ours
		{"ErrIdle", false},
		{"ErrIdol", true},
		{"make ci", false},
		{"make coffee", true},
		{"internal/chunk", false},
		{"internal/chunky", true},
		{"text/event-stream", false},
	} {
		if got := r.missing(tt.span); (got != "") != tt.missing {
			t.Errorf("%s: %q, want missing: %v", tt.span, got, tt.missing)
		}
	}
	for link, broken := range map[string]bool{
		"https://example.com/": false,
		"policies.md":          false,
		"polices.md":           true,
		"../README.md":         false,
		"policies.md#words":    false,
		"policies.md#werds":    true,
		"#words":               false,
		"#werds":               true,
	} {
		if got := r.brokenLink("../docs/policies.md", link); (got != "") != broken {
			t.Errorf("%s: %q, want broken: %v", link, got, broken)
		}
	}
}
