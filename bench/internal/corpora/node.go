package corpora

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"snapfs/bench/internal/program"
)

// nodeLocks fix every package of every install by version and digest, so that the corpus is the same whenever it is
// built.
//
//go:embed locks/*.json
var nodeLocks embed.FS

const (
	nodeTSConfig = `{ "compilerOptions": { "target": "ES2022", "lib": ["ES2022","DOM","DOM.Iterable"], "module": "ESNext", "moduleResolution": "bundler", "jsx": "react-jsx", "strict": true, "noEmit": true, "skipLibCheck": true }, "include": ["src"] }
`
	nodeVite = `import { defineConfig } from 'vite'; import react from '@vitejs/plugin-react'; export default defineConfig({ plugins: [react()], build: { sourcemap: true } });
`
	nodeIndex = `<!doctype html><html><body><div id="root"></div><script type="module" src="/src/main.tsx"></script></body></html>
`
	nodeMain = `import { createRoot } from 'react-dom/client'; import App from './App';
createRoot(document.getElementById('root')!).render(<App />);
`
)

// nodeCorpus is a web project on its way through installs, edits, upgrades and builds.
func nodeCorpus() Corpus {
	return Corpus{
		Name: "C2", recipe: 2, Disk: 500_000_000, Logical: 800_000_000, programs: []string{"npm", "npx", "node"},
		digest: "488f1900414ec545c4dd86fb7f74bcbbaa2d0059fbdb3731c25f116f6fb911b7",
		about:  "vite + react + typescript project: install, build, edits, dependencies, upgrades",
		build: func(ctx context.Context, b *Builder) error {
			n := node{b}
			if err := n.scaffold(); err != nil {
				return err
			}
			for _, step := range []func(context.Context) error{
				n.install, n.build, n.edits, n.dependencies, n.build, n.upgrade, n.components, n.devTools,
			} {
				if err := step(ctx); err != nil {
					return err
				}
				if err := b.Freeze(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

type node struct{ b *Builder }

// npm makes node_modules what a lock file says.
func (n node) npm(ctx context.Context, lock string) error {
	text, err := nodeLocks.ReadFile("locks/" + lock + ".json")
	if err != nil {
		return fmt.Errorf("read lock: %w", err)
	}
	var l struct {
		Packages map[string]struct {
			Dependencies map[string]string `json:"dependencies"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("lock %s: %w", lock, err)
	}
	pkg, err := json.MarshalIndent(map[string]any{
		"name": "agent-app", "private": true, "version": "0.0.1", "type": "module",
		"scripts": map[string]string{"build": "tsc -b && vite build"}, "dependencies": l.Packages[""].Dependencies,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("make package.json: %w", err)
	}
	if err := n.b.Write("package.json", string(pkg)+"\n"); err != nil {
		return err
	}
	if err := n.b.Write("package-lock.json", string(text)); err != nil {
		return err
	}
	// The address of the registry is left out of what npm writes, for it is another one on another machine.
	return program.Setup{Dir: n.b.Workspace}.Run(
		ctx, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--omit-lockfile-registry-resolved",
	)
}

func (n node) build(ctx context.Context) error {
	return program.Setup{Dir: n.b.Workspace}.Run(ctx, "npx", "vite", "build")
}

// panel writes a generated component.
func (n node) panel(k int) error {
	var s strings.Builder
	fmt.Fprintf(
		&s, "import { useState } from 'react';\nexport function Panel%d() {\n  const [n, setN] = useState(%d);\n", k, k,
	)
	fmt.Fprintf(&s, "  return (<section className='panel-%d'>\n", k)
	for j := range 40 {
		fmt.Fprintf(&s, "    <p key='%d-%d'>Panel %d row %d: value {n * %d + %d}</p>\n", k, j+1, k, j+1, j+1, k)
	}
	fmt.Fprintf(&s, "    <button onClick={() => setN(n + 1)}>bump %d</button></section>); }\n", k)
	return n.b.Write(fmt.Sprintf("src/Panel%d.tsx", k), s.String())
}

func (n node) app(panels int, head, title string) error {
	var s strings.Builder
	for k := range panels {
		fmt.Fprintf(&s, "import { Panel%d } from './Panel%d';\n", k+1, k+1)
	}
	fmt.Fprintf(&s, "%s\nexport default function App() { return (<main>%s\n", head, title)
	for k := range panels {
		fmt.Fprintf(&s, "<Panel%d />\n", k+1)
	}
	s.WriteString("</main>); }\n")
	return n.b.Write("src/App.tsx", s.String())
}

func (n node) scaffold() error {
	for name, text := range map[string]string{
		"tsconfig.json": nodeTSConfig, "vite.config.ts": nodeVite,
		"index.html": nodeIndex, "src/main.tsx": nodeMain,
	} {
		if err := n.b.Write(name, text); err != nil {
			return err
		}
	}
	for k := range 20 {
		if err := n.panel(k + 1); err != nil {
			return err
		}
	}
	return n.app(20, "", "")
}

func (n node) install(ctx context.Context) error { return n.npm(ctx, "install") }

func (n node) edits(context.Context) error {
	for _, k := range []int{3, 7, 12} {
		if err := n.b.Edit(
			fmt.Sprintf("src/Panel%d.tsx", k), "row 5:", fmt.Sprintf("row five (%d):", k), "bump", "increment",
		); err != nil {
			return err
		}
	}
	return n.app(20, "", "<h1>agent app</h1>")
}

func (n node) dependencies(ctx context.Context) error {
	if err := n.npm(ctx, "dependencies"); err != nil {
		return err
	}
	return n.app(20, "import { debounce, sortBy } from 'lodash-es'; import { format } from 'date-fns'; "+
		"export const h = debounce(() => sortBy([format(new Date(), 'yyyy')]), 10);", "<h1 onClick={h}>agent app</h1>")
}

func (n node) upgrade(ctx context.Context) error { return n.npm(ctx, "upgrade") }

func (n node) components(ctx context.Context) error {
	for k := 21; k <= 26; k++ {
		if err := n.panel(k); err != nil {
			return err
		}
	}
	if err := n.app(26, "import { debounce } from 'lodash-es'; import { format } from 'date-fns'; "+
		"export const h = debounce(() => console.log(format(new Date(), 'yyyy')), 10);",
		"<h1 onClick={h}>agent app 2</h1>"); err != nil {
		return err
	}
	return n.build(ctx)
}

func (n node) devTools(ctx context.Context) error {
	if err := n.npm(ctx, "tools"); err != nil {
		return err
	}
	if err := n.b.Edit("src/Panel1.tsx", "value", "val"); err != nil {
		return err
	}
	return n.build(ctx)
}
