//go:build statements

package main

import (
	"os"
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
	var mu sync.Mutex
	known := map[string]bool{}
	postgres.ObserveStatements(func(statement string) {
		mu.Lock()
		defer mu.Unlock()
		if known[statement] {
			return
		}
		known[statement] = true
		f, err := os.OpenFile(path+".statements", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return // of another user, or the directory is gone
		}
		_, _ = f.WriteString(strconv.Quote(statement) + "\n") // one write: several processes append
		_ = f.Close()
	})
}
