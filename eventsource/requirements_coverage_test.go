package eventsource_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRequirementsAreHeld looks for each requirement, R001 to R097, in the tests of
// the module: a test has its number in its name, or in its comment in a line
//
//	Requirements: R079, R080
//
// None may be skipped. The one test in the module that may is that of nginx.
func TestRequirementsAreHeld(t *testing.T) {
	const last = 97
	var (
		inName = regexp.MustCompile(`^TestR(\d{3})[A-Z]`)
		inList = regexp.MustCompile(`(?m)^Requirements: (R\d{3}(?:, R\d{3})*)\.?$`)
		number = regexp.MustCompile(`\d{3}`)
	)
	held := make(map[string][]string) // number to tests
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && filepath.Base(path) != "nginx_test.go" {
				switch call.Sel.Name {
				case "Skip", "Skipf", "SkipNow":
					t.Errorf("%s skips", files.Position(call.Pos()))
				}
			}
			return true
		})
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			if m := inName.FindStringSubmatch(f.Name.Name); m != nil {
				held[m[1]] = append(held[m[1]], f.Name.Name)
			}
			if m := inList.FindStringSubmatch(f.Doc.Text()); m != nil {
				for _, n := range number.FindAllString(m[1], -1) {
					held[n] = append(held[n], f.Name.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= last; n++ {
		key := fmt.Sprintf("%03d", n)
		if len(held[key]) == 0 {
			t.Errorf("no test holds R%s", key)
		}
		delete(held, key)
	}
	for n, tests := range held {
		t.Errorf("there is no R%s, which is in %v", n, tests)
	}
}
