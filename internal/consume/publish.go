package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// publish makes dir a module proxy (see go help goproxy) with one module in one version:
// the checkout as if it were a release.
func publish(root, dir string, module moduleInfo) error {
	versions := filepath.Join(dir, filepath.FromSlash(module.Path), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		return err
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": info,
		version + ".mod":  goMod,
	} {
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(versions, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(archive(f, root, module.Path+"@"+version), f.Close())
}

// archive writes the files of the module in root as a module zip. It leaves out nested
// modules, and files whose names begin with a dot, which belong to the project but not
// to the module.
func archive(w io.Writer, root, prefix string) error {
	z := zip.NewWriter(w)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		switch {
		case entry.IsDir():
			if strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" || entry.Name() == "vendor" {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular(), strings.HasPrefix(entry.Name(), "."):
			return nil
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		to, err := z.Create(path.Join(prefix, filepath.ToSlash(relative)))
		if err != nil {
			return err
		}
		from, err := os.Open(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return errors.Join(err, from.Close())
	})
	return errors.Join(err, z.Close())
}
