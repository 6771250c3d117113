package eventsource_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reprise-sse/reprise/internal/vectors"
)

// The document names code and tests for every statement of the standard. What it
// names must exist, and no cell of its tables may be empty.
func TestConformanceDocument(t *testing.T) {
	b, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	names, files := vectorNames(t), goFiles{}
	rows, statements := 0, 0
	var columns []string
	for n, line := range strings.Split(string(b), "\n") {
		if !strings.HasPrefix(line, "|") {
			columns = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if columns == nil {
			for _, c := range cells {
				columns = append(columns, strings.TrimSpace(c))
			}
			continue
		}
		if strings.Trim(line, "|-") == "" {
			continue
		}
		rows++
		if len(cells) != len(columns) {
			t.Errorf("line %d has %d cells, its table has %d columns", n+1, len(cells), len(columns))
			continue
		}
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("line %d: the cell %s is empty", n+1, columns[i])
			}
			refs := regexp.MustCompile("`[^`]+`").FindAllString(cell, -1)
			for j := range refs {
				refs[j] = strings.Trim(refs[j], "`")
			}
			switch columns[i] {
			case "Code":
				statements++
				if len(refs) == 0 {
					t.Errorf("line %d names no code", n+1)
				}
				for _, ref := range refs {
					file, function, _ := strings.Cut(ref, ":")
					if !files.functions(t, "../"+file)[function] {
						t.Errorf("line %d: there is no function %s in %s", n+1, function, file)
					}
				}
			case "Test":
				if len(refs) == 0 {
					t.Errorf("line %d names no test", n+1)
				}
				for _, ref := range refs {
					dir, name, _ := strings.Cut(ref, ":")
					test, vector, isVector := strings.Cut(name, "/")
					if !files.tests(t, "../"+dir)[test] {
						t.Errorf("line %d: there is no %s in %s", n+1, test, dir)
					}
					if isVector && !names[test][vector] {
						t.Errorf("line %d: %s runs no vector %s", n+1, test, vector)
					}
				}
			}
		}
	}
	if rows < 80 || statements < 70 {
		t.Errorf("%d rows, %d of them statements: the tables were not read", rows, statements)
	}

	// Every reason of the table of differences is explained.
	reasons := map[string]bool{}
	for _, reason := range must(t, vectors.Differences) {
		reasons[reason] = true
	}
	for reason := range reasons {
		if !strings.Contains(string(b), "\n| "+reason+" |") {
			t.Errorf("the document does not explain the difference %q", reason)
		}
	}
}

// vectorNames returns the names of the vectors that each test runs.
func vectorNames(t *testing.T) map[string]map[string]bool {
	names := map[string]map[string]bool{}
	add := func(test, vector string) {
		if names[test] == nil {
			names[test] = map[string]bool{}
		}
		names[test][vector] = true
	}
	for _, v := range must(t, vectors.Formats) {
		add("TestVectorsFormat", v.Name)
	}
	for _, v := range must(t, vectors.Networks) {
		add("TestVectorsNetwork", v.Name)
	}
	for _, v := range must(t, vectors.BrowserNamed) {
		add("TestVectorsBrowserNamed", v.ID)
	}
	for _, v := range must(t, vectors.BrowserHTTP) {
		add("TestVectorsBrowserHTTP", v.ID)
	}
	return names
}

// goFiles holds the functions of the files that have been parsed.
type goFiles map[string]map[string]bool

// functions returns the functions and methods of a file, methods as Type.Method.
func (g goFiles) functions(t *testing.T, file string) map[string]bool {
	t.Helper()
	if functions, ok := g[file]; ok {
		return functions
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	functions := map[string]bool{}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		functions[functionName(f)] = true
	}
	g[file] = functions
	return functions
}

// functionName returns the name of a function, or Type.Method.
func functionName(f *ast.FuncDecl) string {
	name := f.Name.Name
	if f.Recv != nil {
		receiver := f.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if ident, ok := receiver.(*ast.Ident); ok {
			name = ident.Name + "." + name
		}
	}
	return name
}

// tests returns the tests and fuzz targets in a directory.
func (g goFiles) tests(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, file := range files {
		for name := range g.functions(t, file) {
			if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
				tests[name] = true
			}
		}
	}
	return tests
}
