package page

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// shared is the Chromium of all tests, started by the first. Each page has a browser context, and so a storage, of its own.
var shared struct {
	once sync.Once
	ctx  context.Context
	err  error
}

func chromium(t *testing.T) context.Context {
	t.Helper()
	path := parts.Chromium(t)
	shared.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("headless", "new"), chromedp.Flag("hide-scrollbars", true))
		allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(allocator)
		shared.ctx, shared.err = ctx, chromedp.Do(ctx)
		parts.AtEnd(func() error {
			defer end()
			defer cancel()
			closing, stop := context.WithTimeout(ctx, parts.Patience)
			defer stop()
			return chromedp.Cancel(closing)
		})
	})
	require.NoError(t, shared.err, "start %s", path)
	return shared.ctx
}

// tab is an open page, with what it did that a person would not see.
type tab struct {
	t         *testing.T
	ctx       context.Context
	base      string
	artifacts string // where screenshots go

	mu       sync.Mutex
	said     []string // errors and warnings on the console, CSP violations and failed requests among them
	requests []string
}

// open opens the page and waits until it has its first data.
func open(t *testing.T, base string, width, height int64) *tab {
	t.Helper()
	p := blank(t, base, width, height)
	p.navigate()
	return p
}

// blank opens an empty page.
func blank(t *testing.T, base string, width, height int64) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium(t), chromedp.WithNewBrowserContext())
	// The directory is asked for first: it must outlive the screenshot of a test that failed.
	p := &tab{t: t, ctx: ctx, base: base, artifacts: t.ArtifactDir()}
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed")
		}
		require.NoError(t, chromedp.Cancel(ctx))
		cancel()
	})
	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, height)))
	require.NoError(t, chromedp.Listen(ctx, p.note))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, cdplog.Enable, cdp.Empty{})
	require.NoError(t, err)
	return p
}

func (p *tab) navigate() {
	p.t.Helper()
	p.do(chromedp.Navigate(p.base + "/"))
	p.await("the first data", `document.documentElement.dataset.stream === 'live' && !document.querySelector('.state.unknown')`)
}

// note is called by the browser's reader for each event.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.said = append(p.said, fmt.Sprintf("console %s: %v", e.Type, e.Args))
		}
	case *runtime.EventExceptionThrown:
		p.said = append(p.said, "exception: "+fmt.Sprintf("%s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError || e.Entry.Level == cdplog.EntryLevelWarning {
			p.said = append(p.said, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	}
}

// requireQuiet wants nothing on the console, and no request but to the relay itself.
func (p *tab) requireQuiet() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.said, "on the console")
	home, err := url.Parse(p.base)
	require.NoError(p.t, err)
	require.NotEmpty(p.t, p.requests)
	for _, request := range p.requests {
		to, err := url.Parse(request)
		require.NoError(p.t, err)
		require.True(p.t, to.Scheme == "data" || to.Scheme == "about" || to.Host == home.Host, "the page asked for %s", request)
	}
}

// console returns, and forgets, what was said on the console.
func (p *tab) console() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := slices.Clone(p.said)
	p.said = nil
	return said
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, parts.Patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, steps...))
}

// await waits until the JavaScript expression is true, also of a page that is loaded meanwhile.
func (p *tab) await(what, expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, parts.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		met, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if met {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.FailNow(p.t, "waited in vain for: "+what, "%s: %v", expression, err)
		}
	}
}

// eval returns the value of the JavaScript expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, parts.Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(p.t, err, "%s", expression)
	return value
}

// text is what a person reads in an element.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return strings.Join(strings.Fields(eval[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector))), " ")
}

// colours has the page believe that the system prefers light or dark.
func (p *tab) colours(scheme string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(p.t, err)
}

func (p *tab) resize(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// press sends keys as a keyboard would.
func (p *tab) press(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys, options...))
}

// screenshot keeps the whole page as an artefact of the test.
func (p *tab) screenshot(name string) []byte {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, parts.Patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(p.artifacts, name+".png"), png, 0o600))
	return png
}
