// Drives the service at SERVICE_URL with the published client: every method of it, with what each is to do here.
import assert from "node:assert/strict";
import { APIError, Client, Sandbox, SandboxWaitTimeoutError } from "sandbox0";

const token = process.env.SERVICE_TOKEN ?? "none";
const client = new Client({ token, baseUrl: process.env.SERVICE_URL });

// What was called, by class and method.
const called = new Set();
function count(name, object, proto = Object.getPrototypeOf(object)) {
  for (const method of Object.getOwnPropertyNames(proto)) {
    const fn = object[method];
    if (method === "constructor" || typeof fn !== "function") continue;
    object[method] = function (...args) {
      called.add(`${name}.${method}`);
      return fn.apply(this, args);
    };
  }
}
const classes = {
  sandboxes: client.sandboxes, volumes: client.volumes, templates: client.templates,
  credentialSources: client.credentialSources, quotas: client.quotas, usage: client.usage,
};
const wanted = new Set();
for (const [name, object] of Object.entries(classes)) {
  for (const m of Object.getOwnPropertyNames(Object.getPrototypeOf(object))) {
    if (m !== "constructor") wanted.add(`${name}.${m}`);
  }
  count(name, object);
}
for (const m of Object.getOwnPropertyNames(Sandbox.prototype)) {
  if (m !== "constructor") wanted.add(`Sandbox.${m}`);
}
count("Sandbox", Sandbox.prototype, Sandbox.prototype);

const text = (bytes) => Buffer.from(bytes).toString("utf-8");
const long = { timeoutMs: 120_000, pollIntervalMs: 20 };

async function fails(status, fn, code) {
  await assert.rejects(fn, (err) => {
    assert.ok(err instanceof APIError, `${err}`);
    assert.equal(err.statusCode, status, `${err.statusCode} ${err.message}`);
    assert.ok(err.requestId, "no request id");
    assert.ok(err.message);
    if (code) assert.equal(err.code, code);
    return true;
  });
}

// until reads events of a watch until one is as wanted.
async function until(watch, is) {
  for await (const e of watch.events()) {
    if (is(e)) return e;
  }
  assert.fail("the watch ended");
}

// files drives the calls about files, which sandboxes and volumes have.
async function files(f) {
  await f.mkdir("/dir/deep", true);
  await fails(409, () => f.mkdir("/dir/deep"));
  await fails(404, () => f.mkdir("/none/deep"));
  await f.writeFile("/dir/a.txt", "hello");
  await f.writeFile("/made/on/the/way.txt", "there");
  assert.equal(text(await f.readFile("/dir/a.txt")), "hello");
  assert.equal(text(await f.readFile("dir/../dir/a.txt")), "hello");
  await f.writeFile("/dir/empty", "");
  assert.equal((await f.readFile("/dir/empty")).length, 0);
  const big = Buffer.alloc(3 << 20, "0123456789abcdef\n");
  await f.writeFile("/dir/big.bin", big);
  assert.ok(big.equals(Buffer.from(await f.readFile("/dir/big.bin"))));
  await f.writeFile("/dir/json.json", '{"data":{"content":"eA=="}}');
  assert.equal(text(await f.readFile("/dir/json.json")), '{"data":{"content":"eA=="}}');

  const stat = await f.statFile("/dir/a.txt");
  assert.equal(stat.name, "a.txt");
  assert.equal(stat.path, "/dir/a.txt");
  assert.equal(stat.type, "file");
  assert.equal(stat.size, 5);
  assert.equal(stat.mode, "0644");
  assert.equal(stat.isLink, false);
  assert.ok(Math.abs(stat.modTime - Date.now()) < 3600_000);
  assert.equal((await f.statFile("/dir")).type, "dir");
  assert.deepEqual((await f.listFiles("/dir")).map((e) => [e.name, e.path, e.type]), [
    ["a.txt", "/dir/a.txt", "file"], ["big.bin", "/dir/big.bin", "file"], ["deep", "/dir/deep", "dir"],
    ["empty", "/dir/empty", "file"], ["json.json", "/dir/json.json", "file"],
  ]);
  assert.deepEqual(await f.listFiles("/dir/deep"), []);

  await f.moveFile("/dir/a.txt", "/elsewhere/new/b.txt");
  await fails(404, () => f.readFile("/dir/a.txt"), "not_found");
  assert.equal(text(await f.readFile("/elsewhere/new/b.txt")), "hello");
  await fails(404, () => f.moveFile("/none", "/x/y"));
  await fails(404, () => f.statFile("/x"));
  await fails(404, () => f.listFiles("/none"));
  await fails(400, () => f.readFile("/dir"));
  await fails(400, () => f.readFile(""));
  await fails(404, () => f.readFile("/../../../etc/passwd"));

  const watch = await f.watchFiles("/dir", true);
  assert.ok(watch.watchId);
  await f.writeFile("/dir/deep/watched.txt", "x");
  const event = await until(watch, (e) => e.path === "/dir/deep/watched.txt");
  assert.equal(event.type, "event");
  assert.equal(event.watchId, watch.watchId);
  await f.deleteFile("/dir/deep/watched.txt");
  watch.close();
  const second = await f.watchFiles("/dir");
  second.unsubscribe(second.watchId);
  await assert.rejects(f.watchFiles("/none"), /watch subscribe failed/);

  await f.deleteFile("/elsewhere/new/b.txt");
  await fails(404, () => f.deleteFile("/elsewhere/new/b.txt"));
  await f.deleteFile("/dir");
  await fails(404, () => f.statFile("/dir"));
}

async function sandboxes() {
  const s = await client.sandboxes.claim("default", { ttl: 600, hardTtl: 7200 });
  assert.equal(s.status, "running");
  assert.deepEqual(s.bootstrapMounts, []);
  await files(s);

  const got = await client.sandboxes.getWithSignal(s.id, AbortSignal.timeout(60_000));
  assert.equal(got.id, s.id);
  assert.equal(got.status, "running");
  assert.ok(got.hardExpiresAt - got.createdAt <= 7200_000 && got.hardExpiresAt - got.createdAt > 7000_000);
  assert.ok(got.expiresAt < got.hardExpiresAt);
  assert.equal((await client.sandboxes.status(s.id)).sandboxId, s.id);
  assert.ok((await client.sandboxes.list({ limit: 1000 })).sandboxes.some((x) => x.id === s.id));
  assert.equal((await client.sandboxes.list({ paused: true })).count, 0);
  const updated = await client.sandboxes.update(s.id, { config: { ttl: 300, autoResume: false } });
  assert.equal(updated.autoResume, false);
  assert.equal((await client.sandboxes.updateMemory(s.id, "512Mi")).resources.memory, "512Mi");
  const refreshed = await client.sandboxes.refresh(s.id, { duration: 1000 });
  assert.ok(refreshed.expiresAt - Date.now() > 900_000);
  await client.sandboxes.refresh(s.id);

  // Paused, it can be read and not changed, and be moved to a snapshot.
  await s.writeFile("/marker", "v1");
  await fails(409, () => client.sandboxes.restoreRootFS(s.id, { snapshotId: "0199aaaa-0000-7000-8000-000000000000" }));
  const snapshot = await client.sandboxes.createRootFSSnapshot(s.id, {
    name: "v1", description: "with a marker", expiresAt: new Date(Date.now() + 3600_000),
  });
  assert.equal(snapshot.sandboxId, s.id);
  assert.ok(snapshot.expiresAt > new Date());
  assert.deepEqual((await client.sandboxes.listRootFSSnapshots(s.id)).map((x) => x.id), [snapshot.id]);
  assert.equal((await client.sandboxes.getRootFSSnapshot(snapshot.id)).description, "with a marker");
  await s.writeFile("/marker", "v2");
  await s.writeFile("/later", "x");
  const paused = await client.sandboxes.pauseAndWait(s.id, long);
  assert.equal(paused.status, "paused");
  assert.equal((await client.sandboxes.pause(s.id)).paused, true);
  assert.equal(text(await s.readFile("/marker")), "v2");
  await fails(409, () => s.writeFile("/marker", "v3"));
  const restored = await client.sandboxes.restoreRootFS(s.id, { snapshotId: snapshot.id });
  assert.equal(restored.snapshotId, snapshot.id);
  assert.equal(restored.status, "paused");
  assert.equal(text(await s.readFile("/marker")), "v1");
  await fails(404, () => s.statFile("/later"));
  assert.equal((await client.sandboxes.listRootFSSnapshots(s.id)).length, 1);
  await assert.rejects(
    client.sandboxes.waitForLifecycle(s.id, (x) => x.status === "running", { timeoutMs: 100, pollIntervalMs: 20 }),
    SandboxWaitTimeoutError,
  );
  const resumed = await client.sandboxes.resumeAndWait(s.id, long);
  assert.equal(resumed.runtimeGeneration, paused.runtimeGeneration + 1);
  assert.equal((await client.sandboxes.resume(s.id)).resumed, true);
  assert.equal((await client.sandboxes.resumeAndWait(s.id, long)).runtimeGeneration, resumed.runtimeGeneration);
  await s.writeFile("/marker", "v3");
  await client.sandboxes.update(s.id, { config: { autoResume: true } });
  await client.sandboxes.pause(s.id);
  await s.writeFile("/marker", "v4"); // resumes it
  assert.equal((await client.sandboxes.get(s.id)).status, "running");

  // What is made of it is apart from it.
  const forked = await client.sandboxes.fork(s.id, { config: { ttl: 0 } });
  assert.equal(forked.sourceSandboxId, s.id);
  assert.equal(forked.sandbox.status, "paused");
  assert.equal(forked.sandbox.expiresAt.getUTCFullYear(), 1);
  await client.sandboxes.resumeAndWait(forked.sandbox.id, long);
  const fork = client.sandbox(forked.sandbox.id);
  assert.equal(text(await fork.readFile("/marker")), "v4");
  await fork.writeFile("/marker", "fork");
  assert.equal(text(await s.readFile("/marker")), "v4");
  const claims = await Promise.all([1, 2, 3, 4].map(() => client.sandboxes.claim("default", { snapshotId: snapshot.id })));
  for (const [i, c] of claims.entries()) {
    assert.equal(text(await c.readFile("/marker")), "v1");
    await c.writeFile("/marker", `claim ${i}`);
  }
  assert.equal(text(await claims[0].readFile("/marker")), "claim 0");
  await client.sandboxes.deleteRootFSSnapshot(snapshot.id);
  await fails(404, () => client.sandboxes.deleteRootFSSnapshot(snapshot.id));
  await fails(404, () => client.sandboxes.claim("default", { snapshotId: snapshot.id }));
  assert.equal(text(await claims[1].readFile("/marker")), "claim 1");
  await fails(400, () => client.sandboxes.createRootFSSnapshot(s.id, { expiresAt: new Date(1000) }));

  for (const id of [s.id, fork.id, ...claims.map((c) => c.id)]) await client.sandboxes.delete(id);
  await fails(404, () => client.sandboxes.delete(s.id));
  await fails(404, () => client.sandboxes.sandbox(s.id).readFile("/marker"));
  const session = await client.sandboxes.open("empty");
  await session.close();
  await fails(404, () => client.sandboxes.get(session.sandbox.id));
}

async function templates() {
  const s = await client.sandboxes.claim("default");
  await s.writeFile("/prepared", "yes");
  const options = { idempotencyKey: "k", wait: true, ...long };
  const request = { templateId: "ready", sandboxId: s.id, specOverrides: { description: "made", tags: ["a"] } };
  const made = await client.templates.createFromSandbox(request, options);
  assert.equal(made.templateId, "ready");
  assert.equal(made.spec.description, "made");
  assert.equal(made.status.creation.state, "ready");
  await client.templates.createFromSandbox(request, options); // made once
  await fails(409, () => client.templates.createFromSandbox(request));
  assert.deepEqual((await client.templates.list()).map((t) => t.templateId), ["default", "ready"]);
  assert.equal((await client.templates.listTemplate()).length, 2);
  assert.equal((await client.templates.get("ready")).templateId, "ready");
  assert.equal((await client.templates.getWithSignal("default")).scope, "public");
  await client.templates.waitUntilReady("ready", long);
  const tasks = await Promise.all([1, 2, 3].map(() => client.sandboxes.claim("ready")));
  for (const t of tasks) {
    assert.equal(t.template, "ready");
    assert.equal(text(await t.readFile("/prepared")), "yes");
  }
  assert.equal((await client.sandboxes.list({ templateId: "ready" })).count, 3);

  const unnamed = await client.sandboxes.createRootFSSnapshot(s.id, {});
  const spec = { mainContainer: { image: unnamed.id, resources: { memory: "1Gi" } } };
  assert.equal((await client.templates.create({ templateId: "named", spec })).templateId, "named");
  await fails(409, () => client.templates.create({ templateId: "other", spec }));
  await fails(501, () => client.templates.create({ templateId: "x", spec: { mainContainer: { image: "ubuntu", resources: {} } } }));
  await fails(501, () => client.templates.update("ready", { spec }), "not_implemented");
  await client.templates.delete("ready");
  await fails(404, () => client.templates.delete("ready"));
  await fails(404, () => client.sandboxes.claim("ready"));
  assert.equal(text(await tasks[0].readFile("/prepared")), "yes");
  for (const x of [s, ...tasks]) await client.sandboxes.delete(x.id);
}

async function volumes() {
  const v = await client.volumes.create({ accessMode: "RWX", defaultPosixUid: 1000 });
  assert.equal(v.accessMode, "RWX");
  assert.equal(v.defaultPosixUid, 1000);
  const bound = {};
  for (const m of ["readFile", "writeFile", "statFile", "listFiles", "mkdir", "deleteFile", "moveFile", "watchFiles"]) {
    bound[m] = (...args) => client.volumes[m](v.id, ...args);
  }
  await files(bound);
  assert.ok((await client.volumes.list()).some((x) => x.id === v.id));
  assert.equal((await client.volumes.get(v.id)).id, v.id);
  await fails(404, () => client.sandboxes.get(v.id)); // it is no sandbox
  assert.ok(!(await client.sandboxes.list({ limit: 1000 })).sandboxes.some((x) => x.id === v.id));

  await client.volumes.writeFile(v.id, "/f", "one");
  const s = await client.volumes.createSnapshot(v.id, { name: "one", description: "d" });
  assert.equal(s.volumeId, v.id);
  assert.equal(s.name, "one");
  assert.equal((await client.volumes.getSnapshot(v.id, s.id)).description, "d");
  await client.volumes.writeFile(v.id, "/f", "two");
  assert.equal((await client.volumes.restoreSnapshot(v.id, s.id)).success, true);
  assert.equal(text(await client.volumes.readFile(v.id, "/f")), "one");
  assert.deepEqual((await client.volumes.listSnapshots(v.id)).map((x) => x.id), [s.id]);
  const fork = await client.volumes.fork(v.id, {});
  assert.equal(fork.sourceVolumeId, v.id);
  await client.volumes.writeFile(fork.id, "/f", "fork");
  assert.equal(text(await client.volumes.readFile(v.id, "/f")), "one");
  const made = await client.volumes.create({ snapshotId: s.id });
  assert.equal(text(await client.volumes.readFile(made.id, "/f")), "one");
  await fails(404, () => client.volumes.getSnapshot(fork.id, s.id)); // of another volume
  await client.volumes.deleteSnapshot(v.id, s.id);
  await fails(404, () => client.volumes.deleteSnapshot(v.id, s.id));
  await fails(501, () => client.volumes.create({ backend: "s3", s3: { provider: "aws", bucket: "b" } }));

  const archive = Buffer.from(process.env.TEST_ARCHIVE, "base64");
  const done = await client.volumes.importArchive(v.id, "/in", archive);
  assert.equal(done.files, 1);
  assert.equal(done.directories, 1);
  assert.equal(done.bytes, 8);
  assert.equal(text(await client.volumes.readFile(v.id, "/in/d/unpacked")), "unpacked");
  await fails(400, () => client.volumes.importArchive(v.id, "/in", Buffer.from("no archive".repeat(100))));

  const session = await client.volumes.open({});
  await session.close();
  for (const x of [v, fork, made]) await client.volumes.delete(x.id, { force: true });
  await fails(404, () => client.volumes.get(v.id));
}

// absent calls what no file system has.
async function absent() {
  const s = await client.sandboxes.claim("default");
  const pty = [1, 2];
  for (const call of [
    () => s.run("python", "1"), () => s.cmd("ls"), () => s.cmdStream("ls"), () => s.ensureReplContext("bash"),
    () => s.getNetworkPolicy(), () => s.updateNetworkPolicy({ mode: "block-all" }),
    () => s.getServices(), () => s.updateServices([]), () => s.clearServices(),
    () => s.listSessions(), () => s.createSession({ process: { type: "cmd" } }), () => s.getSession("x"),
    () => s.updateSession("x", {}), () => s.deleteSession("x"), () => s.setSessionDesiredState("x", "running"),
    () => s.createSessionAttempt("x"), () => s.writeSessionInput("x", { data: "" }), () => s.sendSessionSignal("x", { signal: "TERM" }),
    () => s.resizeSessionTerminal("x", { rows: 1, cols: 1 }), () => s.listSessionEvents("x"), () => s.watchSessionEvents("x"),
    () => s.listContexts(), () => s.createContext({ type: "cmd", cmd: { command: ["ls"] } }), () => s.getContext("x"),
    () => s.deleteContext("x"), () => s.restartContext("x"), () => s.contextInput("x", "y"), () => s.contextExec("x", "y"),
    () => s.contextResize("x", ...pty), () => s.contextSignal("x", "TERM"),
    () => s.listObservabilityEvents(), () => s.watchObservabilityEvents(), () => s.listLogs(), () => s.watchLogs(),
    () => s.getMetrics(), () => s.getMetricsCatalog(),
    () => client.credentialSources.list(), () => client.credentialSources.get("x"), () => client.credentialSources.delete("x"),
    () => client.credentialSources.create({ name: "x", spec: {} }), () => client.credentialSources.update("x", { name: "x", spec: {} }),
    () => client.quotas.list(), () => client.quotas.get("sandboxes"), () => client.usage.listWindows(),
    () => client.sandboxes.claim("default", { mounts: [{ sandboxvolumeId: "x", mountPoint: "/m" }] }),
    () => client.sandboxes.claim("default", { network: { mode: "block-all" } }),
    () => client.sandboxes.update(s.id, { config: { services: [{ id: "web", port: 80 }] } }),
  ]) {
    await fails(501, call, "not_implemented").catch((err) => assert.fail(`${call}: ${err.message}`));
  }
  // Over WebSockets, where the client does not show what it is told.
  await assert.rejects(s.connectSession("x").then((c) => c.messages().next()));
  const stream = await s.connectWsContext("x");
  await assert.rejects(stream.wait());
  await client.sandboxes.delete(s.id);
}

for (const part of [sandboxes, templates, volumes, absent]) {
  const begin = Date.now();
  await part();
  console.log(`${part.name}: ${Date.now() - begin} ms`);
}
const missing = [...wanted].filter((m) => !called.has(m)).sort();
assert.deepEqual(missing, [], "methods that were not called");
console.log(`${called.size} methods`);
