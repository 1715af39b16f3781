// Builds the portal: types from the API's document, type check, bundle, one pack file.
//   node build.mjs [--build FOLDER] [--openapi FILE] [--no-check]
// FOLDER is Meson's build folder (../build); the pack is written to FOLDER/portal/portal.pack.
// The pack: a line "acequia-portal 1 COUNT", COUNT lines "PATH\tCONTENT-TYPE\tLENGTH\tETAG", an empty line, then the
// files' bytes, each compressed by gzip.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { writeApiTypes } from './tools/api-types.mjs';
import { checkCatalogues } from './tools/catalogues.mjs';

const FIRST_LOAD_MAX = 120 * 1024;
const ALL_MAX = 400 * 1024;
const here = dirname(fileURLToPath(import.meta.url));

const TYPES = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  json: 'application/json',
};

function options(argv) {
  const o = { build: resolve(here, '../build'), openapi: null, check: true };
  for (let i = 0; i < argv.length; i++) {
    if (argv[i] === '--build') o.build = resolve(argv[++i]);
    else if (argv[i] === '--openapi') o.openapi = resolve(argv[++i]);
    else if (argv[i] === '--no-check') o.check = false;
    else throw new Error(`unknown option ${argv[i]}`);
  }
  return o;
}

function readOpenApi(o) {
  if (o.openapi) return readFileSync(o.openapi, 'utf8');
  const program = join(o.build, 'src/acequiad/acequiad');
  return execFileSync(program, ['openapi'], { encoding: 'utf8', maxBuffer: 64 << 20 });
}

let phrases = {};  // of the controller: code -> English text

// The English catalogue is always loaded and has the keys: the others are lists of texts in its order.
const catalogues = {
  name: 'catalogues',
  setup: build => build.onLoad({ filter: /locales\/(es|ca)\.json$/ }, args => {
    const texts = JSON.parse(readFileSync(args.path, 'utf8'));
    const keys = Object.keys(JSON.parse(readFileSync(join(dirname(args.path), 'en.json'), 'utf8')));
    return { loader: 'json', contents: JSON.stringify(keys.map(k => texts[k])) };
  }),
};

// What the built-in apps and virtual clusters call themselves and their fields: the English text is the key.
function textsOfApps() {
  const folder = join(here, '../src/controller/apps');
  const apps = readdirSync(folder).filter(n => n.endsWith('.json')).map(n => JSON.parse(readFileSync(join(folder, n), 'utf8')));
  const texts = apps.flatMap(a => [a.title, a.summary, ...(a.fields ?? []).flatMap(x => [x.title, x.help])]).filter(Boolean);
  return Object.fromEntries(texts.map(x => [x, x]));
}

// Sentences come with their code; why something happened is recognised by its English phrase, which goes along.
const controllersPhrases = {
  name: 'phrases',
  setup: build => build.onLoad({ filter: /locales\/phrases\/\w+\.json$/ }, args => {
    const read = path => Object.entries(JSON.parse(readFileSync(path, 'utf8')));
    const texts = read(args.path).map(([k, v]) => [k, k.startsWith('because_') ? [v, phrases[k]] : [v]]);
    const ofApps = read(args.path.replace('/phrases/', '/apps/')).filter(([k, v]) => k !== v).map(([k, v]) => [k, [v]]);
    return { loader: 'json', contents: JSON.stringify(Object.fromEntries([...texts, ...ofApps])) };
  }),
};

// Of the protocol of pools, which the portal speaks as well; its frames are those of pools/data.ts.
function poolVersion() {
  const found = /TASKS_VERSION = (\d+)/.exec(readFileSync(join(here, '../src/tasks/include/tasks/wire.h'), 'utf8'));
  if (!found) throw new Error('src/tasks/include/tasks/wire.h has no TASKS_VERSION');
  return found[1];
}

async function bundle() {
  const esbuild = await import('esbuild');
  return esbuild.build({
    absWorkingDir: here,
    entryPoints: { main: 'src/main.tsx', theme: 'src/theme-first.ts', style: 'src/styles/main.css' },
    bundle: true,
    splitting: true,
    format: 'esm',
    outdir: 'out',
    entryNames: 'assets/[name]-[hash]',
    chunkNames: 'assets/[name]-[hash]',
    outbase: 'src',
    target: ['es2022'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    minify: true,
    legalComments: 'none',
    plugins: [catalogues, controllersPhrases],
    metafile: true,
    define: { TASKS_VERSION: poolVersion() },
    write: false,
    logLevel: 'warning',
  });
}

// What the browser fetches before the first page is drawn: entries and what they import statically.
function firstLoad(metafile, outputs) {
  const entries = ['src/main.tsx', 'src/theme-first.ts', 'src/styles/main.css'];
  const found = new Set();
  const visit = name => {
    if (found.has(name)) return;
    found.add(name);
    for (const i of metafile.outputs[name].imports) if (i.kind === 'import-statement') visit(i.path);
  };
  for (const [name, output] of Object.entries(metafile.outputs)) if (entries.includes(output.entryPoint)) visit(name);
  return [...found].map(name => outputs.get(name));
}

function assemble(result) {
  const outputs = new Map();  // esbuild's name -> path in the pack
  const files = new Map();
  const names = Object.keys(result.metafile.outputs);
  for (const file of result.outputFiles) {
    const name = names.find(n => file.path.endsWith('/' + n));
    const path = '/' + name.replace(/^out\//, '');
    outputs.set(name, path);
    files.set(path, Buffer.from(file.contents));
  }
  const entry = point => outputs.get(names.find(n => result.metafile.outputs[n].entryPoint === point));
  for (const name of readdirSync(join(here, 'static'))) {
    let bytes = readFileSync(join(here, 'static', name));
    if (name === 'index.html')
      bytes = Buffer.from(bytes.toString()
        .replace('@theme@', entry('src/theme-first.ts'))
        .replace('@style@', entry('src/styles/main.css'))
        .replace('@main@', entry('src/main.tsx')));
    files.set('/' + name, bytes);
  }
  const first = [...firstLoad(result.metafile, outputs), '/index.html', '/favicon.svg'];
  return { files, first };
}

function writePack(path, files) {
  const packed = [...files].map(([name, bytes]) => {
    const type = TYPES[name.split('.').pop()];
    if (!type) throw new Error(`${name}: no content type for it in build.mjs`);
    const data = gzipSync(bytes, { level: 9 });
    return { name, type, data, etag: createHash('sha256').update(bytes).digest('hex').slice(0, 20) };
  });
  const head = [`acequia-portal 1 ${packed.length}`, ...packed.map(f => [f.name, f.type, f.data.length, f.etag].join('\t'))];
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path + '.new', Buffer.concat([Buffer.from(head.join('\n') + '\n\n'), ...packed.map(f => f.data)]));
  renameSync(path + '.new', path);
  return new Map(packed.map(f => [f.name, f.data.length]));
}

function checkSizes(sizes, first) {
  const kib = n => `${(n / 1024).toFixed(1)} KiB`;
  const sum = names => names.reduce((n, name) => n + sizes.get(name), 0);
  const firstBytes = sum(first);
  const allBytes = sum([...sizes.keys()]);
  console.log(`Portal: first load ${kib(firstBytes)} of ${kib(FIRST_LOAD_MAX)}, everything ${kib(allBytes)} of ${kib(ALL_MAX)}`);
  if (firstBytes > FIRST_LOAD_MAX || allBytes > ALL_MAX) {
    for (const [name, size] of [...sizes].sort((a, b) => b[1] - a[1])) console.error(`  ${kib(size)}  ${name}`);
    throw new Error('the portal is larger than it may be');
  }
}

async function main() {
  const o = options(process.argv.slice(2));
  const openApi = JSON.parse(readOpenApi(o));
  writeApiTypes(openApi, join(here, 'src/api/schema.ts'));
  phrases = openApi['x-phrases'];
  checkCatalogues(join(here, 'src/locales'));
  checkCatalogues(join(here, 'src/locales/phrases'), phrases);
  checkCatalogues(join(here, 'src/locales/apps'), textsOfApps());
  if (o.check) execFileSync(process.execPath, [join(here, 'node_modules/typescript/bin/tsc'), '--noEmit', '-p', here], { stdio: 'inherit' });
  const { files, first } = assemble(await bundle());
  const sizes = writePack(join(o.build, 'portal/portal.pack'), files);
  checkSizes(sizes, first);
}

main().catch(e => {
  console.error(`portal: ${e.message}`);
  process.exit(1);
});
