package eventsource_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	pathpkg "path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A repository is what documents can name.
type repository struct {
	root    string
	top     map[string]bool // directories in root
	targets map[string]bool // of the Makefile
	code    string          // all Go code, its indentation removed

	// tests are the tests, benchmarks, examples and fuzz targets of every module, each
	// with the directories that have one of that name.
	tests map[string]map[string]bool

	// functions are those of each Go file, the file named from root.
	functions map[string]map[string]bool

	// symbols has the exported names of the public packages as package.Name and
	// package.Type.Member, and also without the package.
	symbols map[string]bool
}

func newRepository(t *testing.T, root string) *repository {
	t.Helper()
	r := &repository{
		root: root, top: map[string]bool{}, targets: map[string]bool{}, symbols: map[string]bool{},
		tests: map[string]map[string]bool{}, functions: map[string]map[string]bool{},
	}
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
	files := goFiles{}
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
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		r.functions[file] = files.functions(t, path)
		if strings.HasSuffix(file, "_test.go") {
			for name := range r.functions[file] {
				if r.tests[name] == nil {
					r.tests[name] = map[string]bool{}
				}
				r.tests[name][pathpkg.Dir(file)] = true
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
	aTest   = regexp.MustCompile(`^(?:([\w/.]+):)?((?:Test|Fuzz|Benchmark|Example)(?:[A-Z_]\w*)?)(…?)(?:/.*)?$`)
	aCode   = regexp.MustCompile(`^([\w./-]+\.go):([\w.]+)$`)
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
		dir, name, more := m[1], m[2], m[3] != ""
		for test, dirs := range r.tests {
			if (test == name || more && strings.HasPrefix(test, name)) && (dir == "" || dirs[dir]) {
				return ""
			}
		}
		return "there is no " + span
	}
	if m := aCode.FindStringSubmatch(span); m != nil && !r.functions[m[1]][m[2]] {
		return "there is no " + span
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

// CONTRIBUTING.md says what each internal package is for.
func TestInternalPackagesAreListed(t *testing.T) {
	page, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := os.ReadDir("../internal")
	if err != nil || len(packages) < 5 {
		t.Fatalf("%d internal packages: %v", len(packages), err)
	}
	for _, dir := range packages {
		if dir.IsDir() && !strings.Contains(string(page), "\n| `internal/"+dir.Name()+"` | ") {
			t.Errorf("CONTRIBUTING.md has no row for internal/%s", dir.Name())
		}
	}
}

// docs/guarantees.md tells of each guarantee what limits it, which code keeps it and
// which tests hold it, and every test that has the number of a guarantee in its name is
// listed there. Numbers in the code are numbers of guarantees.
func TestGuarantees(t *testing.T) {
	r := newRepository(t, "..")
	page, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range r.guarantees(string(page)) {
		t.Error(complaint)
	}
}

var (
	aGuaranteesTest = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)(G\d+)(?:[A-Z_]|$)`)
	aNumber         = regexp.MustCompile(`\bG\d+\b`)
	aSection        = regexp.MustCompile(`(?ms)^## (G\d+): \S.*?\n(.*?)(?:\z|^#)`)
)

// guarantees returns what is wrong with the text of docs/guarantees.md, which this
// repository's tests and comments refer to.
func (r *repository) guarantees(page string) (complaints []string) {
	add := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	sections := map[string]string{}
	for len(page) > 0 {
		at := aSection.FindStringSubmatchIndex(page)
		if at == nil {
			break
		}
		number, text := page[at[2]:at[3]], page[at[4]:at[5]]
		page = page[at[5]:]
		if want := fmt.Sprint("G", len(sections)+1); number != want {
			add("there is a section %s where %s is due", number, want)
		}
		sections[number] = text
		if !strings.HasPrefix(text, "\n> ") {
			add("%s does not begin with its sentence", number)
		}
		parts := map[string]string{}
		for item := range strings.SplitSeq(text, "\n- **") {
			name, rest, _ := strings.Cut(item, "**")
			parts[name] = rest
		}
		if parts["Limits."] == "" {
			add("%s has no limits", number)
		}
		kept, held := aSpan.FindAllStringSubmatch(parts["Kept by"], -1), 0
		if len(kept) == 0 {
			add("%s is kept by no code", number)
		}
		for _, m := range kept {
			if !aCode.MatchString(m[1]) {
				add("%s is kept by %s, which is not a function of a file", number, m[1])
			}
		}
		for _, m := range aSpan.FindAllStringSubmatch(parts["Held by"], -1) {
			test := aTest.FindStringSubmatch(m[1])
			if test == nil {
				add("%s is held by %s, which is not a test", number, m[1])
				continue
			}
			held++
			if other := aGuaranteesTest.FindStringSubmatch(test[2]); other != nil && other[1] != number {
				add("%s is held by %s", number, m[1])
			}
		}
		if held == 0 {
			add("%s is held by no test", number)
		}
	}
	for test, dirs := range r.tests {
		m := aGuaranteesTest.FindStringSubmatch(test)
		if m == nil {
			continue
		}
		for dir := range dirs {
			span := dir + ":" + test
			if dir == "." {
				span = test
			}
			if !strings.Contains(sections[m[1]], "`"+span+"`") {
				add("%s does not list `%s`", m[1], span)
			}
		}
	}
	unknown := map[string]bool{}
	for _, number := range aNumber.FindAllString(r.code, -1) {
		if _, ok := sections[number]; !ok && !unknown[number] {
			unknown[number] = true
			add("the code speaks of %s, which is not a guarantee", number)
		}
	}
	return complaints
}

// The check of the guarantees finds what is missing.
func TestGuaranteesFinds(t *testing.T) {
	const good = `# Guarantees

## G1: Never early

> Never.

- **Limits.** None.
- **Kept by** ` + "`a/wait.go:wait`" + `.
- **Held by** ` + "`a:TestG1NeverEarly`, `TestG1Story`" + `.

## G2: Exactly

> Exactly.

- **Limits.** None.
- **Kept by** ` + "`a/wait.go:wait`" + `.
- **Held by** ` + "`b:TestOther`" + `.

## G10 is not among them
`
	for _, tt := range []struct{ old, new, want string }{
		{"", "", ""},
		{"## G2", "## G3", "there is a section G3 where G2 is due"},
		{"> Never.", "Never.", "G1 does not begin with its sentence"},
		{"- **Limits.** None.\n", "", "G1 has no limits"},
		{"`a/wait.go:wait`", "a/wait.go:wait", "G1 is kept by no code"},
		{"`a/wait.go:wait`", "`wait`", "G1 is kept by wait, which is not a function of a file"},
		{"`b:TestOther`", "b:TestOther", "G2 is held by no test"},
		{"`b:TestOther`", "`b:other`", "G2 is held by b:other, which is not a test"},
		{"`b:TestOther`", "`a:TestG1NeverEarly`", "G2 is held by a:TestG1NeverEarly"},
		{"`a:TestG1NeverEarly`", "`b:TestG1NeverEarly`", "G1 does not list `a:TestG1NeverEarly`"},
		{", `TestG1Story`", "", "G1 does not list `TestG1Story`"},
	} {
		r := &repository{
			tests: map[string]map[string]bool{"TestG1NeverEarly": {"a": true}, "TestG1Story": {".": true}, "TestOther": {"b": true}},
			code:  "// G1: wait\n// G2: not at all\n",
		}
		got := strings.Join(r.guarantees(strings.Replace(good, tt.old, tt.new, 1)), "\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("with %q for %q: %q, want %q", tt.new, tt.old, got, tt.want)
		}
		r.code += "// G3: gone\n"
		if got := r.guarantees(good); !slices.Contains(got, "the code speaks of G3, which is not a guarantee") {
			t.Errorf("a number of nothing is not found: %q", got)
		}
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
		{"policy:TestDocuments", true},
		{"eventsource:TestDocu…", false},
		{"policy:TestDocumentz…", true},
		{"TestDocuments/case", false},
		{"eventsource/decode.go:Decoder.Next", false},
		{"eventsource/decode.go:Decoder.Last", true},
		{"eventsource/decoder.go:Decoder.Next", true},
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
		"policies.md#presets":  false,
		"policies.md#presents": true,
		"#presets":             false,
		"#presents":            true,
	} {
		if got := r.brokenLink("../docs/policies.md", link); (got != "") != broken {
			t.Errorf("%s: %q, want broken: %v", link, got, broken)
		}
	}
}
