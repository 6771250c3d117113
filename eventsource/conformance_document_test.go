package eventsource_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/reprise-sse/reprise/internal/vectors"
)

// docs/conformance.md names code and tests for every statement of the standard. That
// they exist is for TestDocuments to see; here, that none is missing, and that each
// vector is one that its test runs.
func TestConformanceDocument(t *testing.T) {
	b, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	vectorsOf := vectorNames(t)
	rows, statements := 0, 0
	var columns []string
	for n, line := range strings.Split(string(b), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
			continue
		case columns == nil:
			columns = cells
			continue
		case strings.Trim(line, "|-") == "":
			continue
		case len(cells) != len(columns):
			t.Errorf("line %d has %d cells, its table has %d columns", n+1, len(cells), len(columns))
			continue
		}
		rows++
		for i, cell := range cells {
			column, spans := strings.TrimSpace(columns[i]), aSpan.FindAllStringSubmatch(cell, -1)
			if strings.TrimSpace(cell) == "" || len(spans) == 0 && (column == "Code" || column == "Test") {
				t.Errorf("line %d names nothing in the column %s", n+1, column)
			}
			if column == "Code" {
				statements++
			}
			for _, m := range spans {
				test := aTest.FindStringSubmatch(m[1])
				if column == "Code" && !aCode.MatchString(m[1]) || column == "Test" && (test == nil || test[1] == "") {
					t.Errorf("line %d: %s is not for the column %s", n+1, m[1], column)
				}
				if test == nil {
					continue
				}
				if _, vector, ok := strings.Cut(m[1], test[2]+"/"); ok && !vectorsOf[test[2]][vector] {
					t.Errorf("line %d: %s runs no vector %s", n+1, test[2], vector)
				}
			}
		}
	}
	if rows < 80 || statements < 70 {
		t.Errorf("%d rows, %d of them statements: the tables were not read", rows, statements)
	}

	for _, reason := range must(t, vectors.Differences) {
		if !strings.Contains(string(b), "\n| "+reason+" |") {
			t.Errorf("the document does not explain the difference %q", reason)
		}
	}
}

// vectorNames returns the names of the vectors that each test runs.
func vectorNames(t *testing.T) map[string]map[string]bool {
	names := map[string]map[string]bool{
		"TestVectorsFormat": {}, "TestVectorsNetwork": {}, "TestVectorsBrowserNamed": {}, "TestVectorsBrowserHTTP": {},
	}
	for _, v := range must(t, vectors.Formats) {
		names["TestVectorsFormat"][v.Name] = true
	}
	for _, v := range must(t, vectors.Networks) {
		names["TestVectorsNetwork"][v.Name] = true
	}
	for _, v := range must(t, vectors.BrowserNamed) {
		names["TestVectorsBrowserNamed"][v.ID] = true
	}
	for _, v := range must(t, vectors.BrowserHTTP) {
		names["TestVectorsBrowserHTTP"][v.ID] = true
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
