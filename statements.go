//go:build statements

package main

import (
	"os"
	"regexp"
	"strconv"
	"sync"

	"github.com/postrider/postrider/internal/postgres"
)

// This file is only in the binary that tests build: it writes the statements that the program
// sends beside the binary. TestStatements_CallNobodyElsesCode
func init() {
	path, err := os.Executable()
	if err != nil {
		return
	}
	// What differs only in constants is one statement: a pruner has new ones in each run, for hours.
	constant := regexp.MustCompile(`'(?:[^']|'')*'|[0-9]+`)
	var mu sync.Mutex
	known := map[string]bool{}
	postgres.ObserveStatements(func(statement string) {
		form := constant.ReplaceAllLiteralString(statement, "0")
		mu.Lock()
		defer mu.Unlock()
		if known[form] {
			return
		}
		known[form] = true
		f, err := os.OpenFile(path+".statements", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return // of another user, or the directory is gone
		}
		_, _ = f.WriteString(strconv.Quote(statement) + "\n") // one write: several processes append
		_ = f.Close()
	})
}
