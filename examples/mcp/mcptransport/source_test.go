package mcptransport_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestNoTimersAndNoRetryLoops holds what this example is there to show: waiting and
// trying again are left to the engine.
func TestNoTimersAndNoRetryLoops(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		looked++
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for what, pos := range waits(tree) {
			t.Errorf("%s: %s", fset.Position(pos), what)
		}
	}
	if looked < 5 {
		t.Errorf("looked at %d files only", looked)
	}
}

// The test above finds what it looks for.
func TestWaitsAreFound(t *testing.T) {
	for _, body := range []string{
		"time.Sleep(1)", "<-time.After(1)", "time.NewTimer(1)", "time.AfterFunc(1, nil)", "_ = time.Tick",
		"time.NewTicker(1)", "context.WithTimeout(nil, 1)", "context.WithDeadlineCause(nil, x, nil)",
		"clk.AfterFunc(1, nil)", "for {}", "for attempt := 0; attempt < 3; attempt++ {}", "for range 5 {}", "again: goto again",
	} {
		src := "package p\nfunc f() {\n" + body + "\n}"
		tree, err := parser.ParseFile(token.NewFileSet(), "p.go", src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(waits(tree)) == 0 {
			t.Errorf("%s was not found", body)
		}
	}
	if tree, _ := parser.ParseFile(token.NewFileSet(), "p.go", "package p\nimport \"github.com/cenkalti/backoff/v4\"", 0); len(waits(tree)) == 0 {
		t.Error("the import of a backoff was not found")
	}
}

// waits finds what waits by the clock or does something again and again. Ranging
// over what there is, a map or a stream, is neither.
func waits(tree *ast.File) map[string]token.Pos {
	found := map[string]token.Pos{}
	for _, spec := range tree.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); strings.Contains(path, "backoff") || strings.Contains(path, "retry") {
			found["import of "+path] = spec.Pos()
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			found["a loop that is no range"] = n.Pos()
		case *ast.RangeStmt:
			if _, ok := n.X.(*ast.BasicLit); ok {
				found["a loop over a number"] = n.Pos()
			}
		case *ast.BranchStmt:
			if n.Tok == token.GOTO {
				found["a goto"] = n.Pos()
			}
		case *ast.SelectorExpr:
			of, _ := n.X.(*ast.Ident)
			name := n.Sel.Name
			switch {
			case of == nil:
			case of.Name == "time" && name != "Second" && name != "Duration":
				found["time."+name] = n.Pos()
			case of.Name == "context" && (strings.HasPrefix(name, "WithTimeout") || strings.HasPrefix(name, "WithDeadline")):
				found["context."+name] = n.Pos()
			case of.Name != "context" && name == "AfterFunc":
				found[of.Name+".AfterFunc"] = n.Pos()
			}
		}
		return true
	})
	return found
}
