package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// fate is what becomes of a mutation.
type fate string

const (
	killed   fate = "killed"
	survived fate = "SURVIVED"
	broken   fate = "BROKEN" // it shows nothing: it does not fit or build, or its test does not run
)

// copyModule copies the module in root to dir, without its history.
func copyModule(root, dir string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch to := filepath.Join(dir, name); {
		case entry.Name() == ".git": // a file in a worktree
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		case !entry.Type().IsRegular():
			return nil
		default:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			return os.WriteFile(to, text, info.Mode().Perm())
		}
	})
}

// longest is the time that a test may take.
const longest = 15 * time.Minute

// goTest runs tests of a package of the module in dir, and returns what go test printed. An error
// is one of running it: that a test fails is none.
func goTest(ctx context.Context, dir, pkg string, tests ...string) (bool, string, error) {
	timeout := time.Duration(len(tests)) * longest
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-v",
		"-timeout", timeout.String(), "-run", "^("+strings.Join(tests, "|")+")$", "./"+pkg)
	cmd.Dir = dir
	// An interrupt reaches the test too, which stops its servers.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && ctx.Err() == nil {
		return false, output.String(), nil
	}
	return err == nil, output.String(), err
}

// ran reports whether the output is of a run of the test to its end.
func ran(output, test string) bool {
	return regexp.MustCompile(`(?m)^=== RUN   `+test+`$`).MatchString(output) &&
		!regexp.MustCompile(`(?m)^(--- SKIP: `+test+` |panic: test timed out)`).MatchString(output)
}

// failed reports whether the output has a failure of the test.
func failed(output, test string) bool {
	return regexp.MustCompile(`(?m)^--- FAIL: ` + test + ` `).MatchString(output)
}

// try applies a mutation to the module in dir, runs its test, and takes the mutation back. The
// output says why.
func (p patch) try(ctx context.Context, dir string) (became fate, output string, err error) {
	if err := p.apply(dir); err != nil {
		return broken, err.Error(), nil
	}
	defer func() { err = errors.Join(err, p.apply(dir, "-R")) }()
	passed, output, err := goTest(ctx, dir, p.dir, p.test)
	switch {
	case err != nil || !ran(output, p.test):
		return broken, output, err
	case passed:
		return survived, output, nil
	default:
		return killed, output, nil
	}
}
