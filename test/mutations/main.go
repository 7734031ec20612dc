package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "regular expression: run only mutations whose name matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	chosen, err := patches(filepath.Join("test", "mutations"))
	if err != nil {
		return err
	}
	chosen = slices.DeleteFunc(chosen, func(p patch) bool { return !wanted.MatchString(p.name) })
	if len(chosen) == 0 {
		return errors.New("no mutation has such a name: run this in the root of the module")
	}
	dir, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // servers of tests may run as another user
		return err
	}
	if err := copyModule(".", dir); err != nil {
		return err
	}
	if err := unchanged(ctx, dir, chosen); err != nil {
		return err
	}

	var left []string
	for _, p := range chosen {
		began := time.Now()
		became, output, err := p.try(ctx, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Printf("%7.1f s  %-8s  %s: %s %s\n",
			time.Since(began).Seconds(), became, p.name, p.dir, p.test)
		if became != killed {
			left = append(left, p.name)
			fmt.Println(output[max(0, len(output)-4000):])
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%d mutations, survivors: %s", len(chosen), strings.Join(left, ", "))
	}
	fmt.Printf("%d mutations, survivors: none\n", len(chosen))
	return nil
}

// unchanged runs the tests of all mutations without any: one that fails anyway kills nothing.
func unchanged(ctx context.Context, dir string, chosen []patch) error {
	tests, packages := map[string][]string{}, []string(nil)
	for _, p := range chosen {
		if tests[p.dir] == nil {
			packages = append(packages, p.dir)
		}
		if !slices.Contains(tests[p.dir], p.test) {
			tests[p.dir] = append(tests[p.dir], p.test)
		}
	}
	slices.Sort(packages)
	for _, pkg := range packages {
		began := time.Now()
		passed, output, err := goTest(ctx, dir, pkg, tests[pkg]...)
		if err != nil {
			return err
		}
		for _, test := range tests[pkg] {
			if failed(output, test) || !ran(output, test) {
				return fmt.Errorf("%s %s fails, or does not run, without a mutation:\n%s",
					pkg, test, output)
			}
		}
		if !passed {
			return fmt.Errorf("tests of %s fail without a mutation:\n%s", pkg, output)
		}
		fmt.Printf("%7.1f s  unchanged %s: %d tests pass\n",
			time.Since(began).Seconds(), pkg, len(tests[pkg]))
	}
	return nil
}
