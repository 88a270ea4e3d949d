// A client with all capabilities that uses all of server-everything once. argv: the SDK's directory.
// Reads a job (where the server is, as for surfaces.mjs, and `mode`) from each line of its input, and prints what it
// got: the lists, a result for each step, what it was asked and what it was told.
import readline from "node:readline";
import { loaded, transport } from "./wire.mjs";

const sdk = await loaded(process.argv[2]);
const ROOTS = [{ uri: "file:///home/somebody/project", name: "project" }];
const CAPABILITIES = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };
const FORM = { name: "Somebody", check: true, integer: 7, email: "somebody@example.com" };

const TOOLS = [
  ["echo", { message: "grüße \u2603 \\ \"quoted\"" }],
  ["get-annotated-message", { messageType: "error", includeImage: true }],
  ["get-env", {}],
  ["get-resource-links", { count: 4 }],
  ["get-resource-reference", { resourceType: "Blob", resourceId: 2 }],
  ["get-structured-content", { location: "Chicago" }],
  ["get-sum", { a: 0.1, b: 0.2 }],
  ["get-tiny-image", {}],
  ["gzip-file-as-resource", { name: "linked.gz", data: "data:text/plain,hello", outputType: "resourceLink" }],
  ["toggle-simulated-logging", {}],
  ["toggle-simulated-logging", {}],
  ["toggle-subscriber-updates", {}],
  ["toggle-subscriber-updates", {}],
  ["trigger-long-running-operation", { duration: 0.2, steps: 2 }],
  ["get-roots-list", {}],
  ["trigger-elicitation-request", {}],
  ["trigger-url-elicitation", { url: "https://example.com/", elicitationId: "e-1" }],
  ["trigger-url-elicitation", { url: "https://example.com/", elicitationId: "e-2", errorPath: true }],
  ["trigger-sampling-request", { prompt: "say hello", maxTokens: 10 }],
];
const PROMPTS = [
  ["simple-prompt", undefined],
  ["args-prompt", { city: "Ulm", state: "BW" }],
  ["completable-prompt", { department: "Sales", name: "David" }],
  ["resource-prompt", { resourceType: "Text", resourceId: "3" }],
];
const RESOURCES = [
  "demo://resource/static/document/architecture.md",
  "demo://resource/static/document/extension.md",
  "demo://resource/static/document/features.md",
  "demo://resource/static/document/how-it-works.md",
  "demo://resource/static/document/instructions.md",
  "demo://resource/static/document/startup.md",
  "demo://resource/static/document/structure.md",
  "demo://resource/dynamic/text/5",
  "demo://resource/dynamic/blob/6",
  "demo://resource/session/linked.gz",
  "demo://resource/nowhere",
];
const COMPLETIONS = [
  { ref: { type: "ref/prompt", name: "completable-prompt" }, argument: { name: "department", value: "S" } },
  {
    ref: { type: "ref/prompt", name: "completable-prompt" },
    argument: { name: "name", value: "D" },
    context: { arguments: { department: "Sales" } },
  },
  {
    ref: { type: "ref/resource", uri: "demo://resource/dynamic/text/{resourceId}" },
    argument: { name: "resourceId", value: "1" },
  },
];
const WATCHED = "demo://resource/dynamic/text/5";

function answers(client, asked) {
  const answering = (method, answer) =>
    sdk.onRequest(client, method, (request) => {
      asked.push({ method, params: request.params ?? {} });
      return answer(request.params ?? {});
    });
  answering("elicitation/create", ({ mode }) => ({ action: "accept", ...(mode === "url" ? {} : { content: FORM }) }));
  answering("sampling/createMessage", ({ messages }) => ({
    model: "none",
    role: "assistant",
    stopReason: "endTurn",
    content: { type: "text", text: `sampled ${messages[0].content.text}` },
  }));
  answering("roots/list", () => ({ roots: ROOTS }));
}

async function task(client) {
  const ask = (method, params) => sdk.request(client, { method, params });
  const research = { name: "simulate-research-query", arguments: { topic: "python", ambiguous: true } };
  const { task } = await ask("tools/call", { ...research, task: { ttl: 60000 } });
  const listed = (await ask("tasks/list", {})).tasks.map((each) => each.taskId === task.taskId);
  const result = await ask("tasks/result", { taskId: task.taskId });
  const { status } = await ask("tasks/get", { taskId: task.taskId });
  const second = (await ask("tools/call", { ...research, task: { ttl: 60000 } })).task;
  const cancelled = await ask("tasks/cancel", { taskId: second.taskId });
  return { began: Object.keys(task), listed, result, status, cancelled: cancelled.status };
}

async function perform(job) {
  const asked = [];
  const told = [];
  const results = {};
  const client = sdk.made({ name: "all-capabilities", version: "1.0.0" }, job.mode, CAPABILITIES);
  answers(client, asked);
  client.fallbackNotificationHandler = async ({ method, params }) => void told.push({ method, params });
  const connection = transport(sdk, job);
  await client.connect(connection);
  const step = async (name, act) => {
    try {
      results[name] = await act();
    } catch (error) {
      results[name] = { fault: { code: error.code, message: error.message, data: error.data } };
    }
  };
  await step("tools/list", () => client.listTools());
  await step("prompts/list", () => client.listPrompts());
  await step("resources/list", () => client.listResources());
  await step("resources/templates/list", () => client.listResourceTemplates());
  if (job.level) await step("logging/setLevel", () => client.setLoggingLevel("debug"));
  if (job.level) await step("subscribe", () => client.subscribeResource({ uri: WATCHED }));
  for (const [index, [name, args]] of TOOLS.entries()) {
    const progress = [];
    const options = { onprogress: (at) => progress.push(at) };
    await step(`${index} ${name}`, () => sdk.call(client, { name, arguments: args }, options));
    if (progress.length) results[`${index} ${name} progress`] = progress;
  }
  for (const [name, args] of PROMPTS) await step(name, () => client.getPrompt({ name, arguments: args }));
  for (const uri of RESOURCES) await step(uri, () => client.readResource({ uri }));
  for (const [index, each] of COMPLETIONS.entries()) await step(`completion ${index}`, () => client.complete(each));
  if (job.level) await step("unsubscribe", () => client.unsubscribeResource({ uri: WATCHED }));
  if (job.tasks) await step("task", () => task(client));
  const capabilities = client.getServerCapabilities();
  const instructions = client.getInstructions();
  await client.close();
  return { capabilities, instructions, results, asked, told };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await perform(JSON.parse(line))));
}
