package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
)

// TestNode installs and builds a Vite + React + TypeScript project of more than 20,000 files in a mount. It needs the
// npm registry. The versions are the newest that run on the Node of Debian 12 (18) as well as on later ones.
func TestNode(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.ok("up", "app", h.path("app"))
	app := h.path("app")
	shell(t, soon, app, `mkdir src
cat > package.json <<'P'
{ "name": "app", "private": true, "version": "0.0.1", "type": "module", "scripts": { "build": "tsc -b && vite build" },
  "dependencies": { "react": "19.1.0", "react-dom": "19.1.0", "lodash-es": "4.17.21", "date-fns": "4.1.0", "zustand": "5.0.6", "rxjs": "7.8.2", "lucide-react": "0.511.0", "@mui/material": "7.1.0", "@emotion/react": "11.14.0", "@emotion/styled": "11.14.0" },
  "devDependencies": { "vite": "6.3.5", "@vitejs/plugin-react": "4.5.0", "typescript": "5.8.3", "@types/react": "19.1.0", "@types/react-dom": "19.1.0", "@types/lodash-es": "4.17.12" } }
P
cat > tsconfig.json <<'P'
{ "compilerOptions": { "target": "ES2022", "lib": ["ES2022","DOM","DOM.Iterable"], "module": "ESNext", "moduleResolution": "bundler", "jsx": "react-jsx", "strict": true, "noEmit": true, "skipLibCheck": true }, "include": ["src"] }
P
cat > vite.config.ts <<'P'
import { defineConfig } from 'vite'; import react from '@vitejs/plugin-react'; export default defineConfig({ plugins: [react()], build: { sourcemap: true } });
P
echo '<!doctype html><html><body><div id="root"></div><script type="module" src="/src/main.tsx"></script></body></html>' > index.html
cat > src/main.tsx <<'P'
import { createRoot } from 'react-dom/client'; import App from './App';
createRoot(document.getElementById('root')!).render(<App />);
P
cat > src/App.tsx <<'P'
import { useState } from 'react'; import { sortBy } from 'lodash-es'; import { format } from 'date-fns';
export default function App() { const [n, setN] = useState(0); return <button onClick={() => setN(n + 1)}>{sortBy([format(new Date(), 'yyyy')])[0]} {n}</button>; }
P`)
	h.ok("snapshot", "app", "--name", "sources")
	npm := `export npm_config_cache=$1; npm --no-audit --no-fund --prefer-offline --fetch-retries=2 --fetch-timeout=30000 --loglevel=error `
	// Once more, because registries have bad moments; the second time most is in the cache.
	shell(t, 5*time.Minute, app, npm+`install || `+npm+`install`, h.path("npm-cache"))
	count, err := strconv.Atoi(strings.TrimSpace(shell(t, soon, app, `find . | wc -l`)))
	require.NoError(t, err)
	require.Greater(t, count, 20000)
	t.Logf("%d files", count)

	h.ok("snapshot", "app", "--name", "installed")
	shell(t, 3*time.Minute, app, npm+`run build && test -s dist/index.html && ls dist/assets/*.js`, h.path("npm-cache"))
	built := walk(t, app)
	h.ok("snapshot", "app", "--name", "built", "--wait", "stored")

	h.ok("restore", "built", h.path("restored"))
	same(t, "restored and built", built, walk(t, h.path("restored")), treewalk.Options{})
	// A directory of a lower is renamed, with all that is in it, and programs find it there and back again.
	shell(t, soon, h.path("restored"), `mv node_modules modules && test ! -e node_modules && test -x modules/.bin/vite && mv modules node_modules`)
	same(t, "renamed there and back", built, walk(t, h.path("restored")), treewalk.Options{IgnoreRoot: true})
	// A bundler replaces the directory that it has made before.
	h.ok("branch", "installed", h.path("branch"))
	shell(t, soon, h.path("branch"), `test ! -e dist && mkdir -p dist/old`)
	shell(t, 3*time.Minute, h.path("branch"), `node_modules/.bin/vite build && test -s dist/index.html && test ! -e dist/old`)
	same(t, "the origin beside its branches", built, walk(t, app), treewalk.Options{})
}
