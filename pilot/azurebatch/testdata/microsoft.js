// Speaks with a Batch service by Microsoft's own client (@azure/batch), and prints what it read. It fails if the
// service's answer has a property that the client's models do not have.
'use strict';
const { BatchServiceClient, BatchSharedKeyCredentials, BatchServiceMappers: mappers } = require('@azure/batch');

// unknown returns the paths of the properties of a value that a model does not have.
function unknown(value, type, path) {
  if (value === null || value === undefined) return [];
  if (type.name === 'Sequence') {
    return value.flatMap((v, i) => unknown(v, type.element.type, `${path}[${i}]`));
  }
  if (type.name !== 'Composite') return [];
  const model = type.modelProperties ? type : mappers[type.className].type;
  const known = new Map(Object.values(model.modelProperties).map((p) => [p.serializedName, p]));
  return Object.entries(value).flatMap(([name, v]) =>
    known.has(name) ? unknown(v, known.get(name).type, `${path}.${name}`) : [`${path}.${name}`]);
}

// read returns the body of an answer, which the models have to know. A list is in value; a text with "odata" in its
// name is of the protocol.
function read(answer, model) {
  const body = JSON.parse(answer._response.bodyAsText);
  const list = Array.isArray(body.value) ? body.value : [body];
  for (const o of list) {
    for (const name of Object.keys(o)) if (name.startsWith('odata.')) delete o[name];
    const strange = unknown(o, mappers[model].type, model);
    if (strange.length) throw new Error(`no model of Microsoft's has ${strange.join(', ')}`);
  }
  return answer;
}

async function refusal(promise) {
  try {
    await promise;
  } catch (e) {
    return [e.statusCode, e.body && e.body.code].filter(Boolean).join(" "); // a stream has no code
  }
  return 'none';
}

async function text(answer) {
  let all = '';
  for await (const piece of answer.readableStreamBody) all += piece;
  return all;
}

async function main(input) {
  const { url, account, key, job, pool, added, running } = input;
  const c = new BatchServiceClient(new BatchSharedKeyCredentials(account, key), url);
  const strange = added.flatMap((t) => unknown(t, mappers.TaskAddParameter.type, 'task'));
  if (strange.length) throw new Error(`no model of Microsoft's has ${strange.join(', ')}`);
  const out = {};
  out.job = read(await c.job.get(job), 'CloudJob').state;
  const p = read(await c.pool.get(pool), 'CloudPool');
  out.pool = `${p.vmSize} ${p.currentDedicatedNodes} ${p.allocationState}`;
  out.counts = (await c.job.getTaskCounts(job)).taskCounts;
  const nodes = read(await c.computeNode.list(pool, { computeNodeListOptions: { filter: "state eq 'running'" } }), 'ComputeNode');
  out.nodes = nodes.map((n) => n.state);
  const counts = read(await c.account.listPoolNodeCounts({ accountListPoolNodeCountsOptions: { filter: `poolId eq '${pool}'` } }), 'PoolNodeCounts');
  out.nodeCounts = `${counts[0].dedicated.running} ${counts[0].dedicated.total}`;
  const options = { filter: "startswith(id,'cl_worker_codalab_') and state ne 'completed'", select: 'id,state,executionInfo,nodeInfo', maxResults: 2 };
  let page = read(await c.task.list(job, { taskListOptions: options }), 'CloudTask');
  out.pages = [page.length];
  out.listed = page.map((t) => `${t.id} ${t.state}`);
  while (page.odatanextLink) {
    page = read(await c.task.listNext(page.odatanextLink), 'CloudTask');
    out.pages.push(page.length);
    out.listed.push(...page.map((t) => `${t.id} ${t.state}`));
  }
  const t = read(await c.task.get(job, running), 'CloudTask');
  out.task = { command: t.commandLine, image: t.containerSettings.imageName, output: t.outputFiles.length, node: t.nodeInfo.nodeId, retries: t.constraints.maxTaskRetryCount };
  out.file = await text(await c.file.getFromTask(job, running, 'stderr.txt'));
  out.tail = await text(await c.file.getFromTask(job, running, 'stderr.txt', { fileGetFromTaskOptions: { ocpRange: 'bytes=4-' } }));
  await c.task.add(job, { id: 'microsofts', commandLine: '/bin/true' });
  out.refusals = {
    again: await refusal(c.task.add(job, { id: 'Microsofts', commandLine: '/bin/true' })),
    task: await refusal(c.task.get(job, 'none')),
    job: await refusal(c.job.get('none')),
    file: await refusal(c.file.getFromTask(job, running, 'none.txt')),
    filter: await refusal(c.task.list(job, { taskListOptions: { filter: 'commandLine eq 1' } })),
  };
  await c.task.terminate(job, running);
  out.refusals.ended = await refusal(c.task.terminate(job, running));
  const ended = read(await c.task.get(job, running), 'CloudTask');
  out.ended = `${ended.state} ${ended.executionInfo.result} ${ended.executionInfo.failureInfo.code}`;
  await c.task.deleteMethod(job, running);
  out.refusals.deleted = await refusal(c.task.get(job, running));
  const other = new BatchServiceClient(new BatchSharedKeyCredentials(account, Buffer.from('other').toString('base64')), url);
  out.refusals.key = await refusal(other.job.get(job));
  console.log(JSON.stringify(out));
}

let input = '';
process.stdin.on('data', (d) => (input += d)).on('end', () =>
  main(JSON.parse(input)).catch((e) => {
    console.error(e);
    process.exit(1);
  }));
