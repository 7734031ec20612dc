// Package build describes the build of postrider that runs.
package build

import (
	"runtime"
	"runtime/debug"
)

// Version is set by the release build:
//
//	-ldflags "-X github.com/postrider/postrider/internal/build.Version=v1.2.3"
//
// Empty: the version that the Go toolchain recorded.
var Version string

// Info describes a build.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified"`           // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Current is the build that runs.
func Current() Info {
	b := Info{Version: Version, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"
	}
	return b
}

// Release is the version, or "dev".
func Release() string { return Current().Version }

func (b Info) String() string {
	text := "postrider " + b.Version
	switch {
	case b.Modified && b.Revision != "":
		text += " (" + b.Revision + ", modified)"
	case b.Revision != "":
		text += " (" + b.Revision + ")"
	}
	return text + " " + b.Go + " " + b.Platform
}
