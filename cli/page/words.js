/* words.js: labels of members of the report, and what they mean. Those that a page uses are listed at its end. */
const LABELS = {
    in: 'tensors in the source', out: 'tensors in the output', objects_out: 'objects in the output', by_digest: 'tensors compared by digest', in_bytes: 'tensor bytes in the source', left_out: 'tensors left out',
    left_out_objects: 'objects left out', left_out_bytes: 'bytes left out', tied_dropped: 'tied names omitted', tied_dropped_bytes: 'bytes of tied names omitted', cast: 'tensors cast',
    cast_overflows: 'values that became infinite in a cast', bytes_written: 'bytes of the output files', bytes_written_direct: 'bytes written with O_DIRECT', bytes_summed: 'bytes compared with checksums',
    bytes_travelled: 'bytes sent between ranks', bytes_copied: 'bytes copied to other hosts', items: 'work items', segments: 'contiguous copies', tensors_a: 'tensors in A', tensors_b: 'tensors in B', replicated: 'replicated tensors',
    empty_pieces: 'empty shards', tied_bytes: 'bytes of tied names', tied: 'tied names', state_files: 'files of trainer state', unread_tensors: 'tensors not read', unread_bytes: 'bytes not read',
    skipped_records: 'records skipped', skipped_bytes: 'bytes skipped', whole: 'parameters in no unit', whole_bytes: 'bytes of parameters in no unit', ignored: 'ignored', torch_version: 'torch', world_size: 'ranks',
    recorded_world_size: 'recorded ranks', cut_otherwise: 'tensors sharded otherwise', sys_errno: 'errno', min: 'least', max: 'most', other_params: 'floating-point tensors in no part',
    other_params_bytes: 'bytes of floating-point tensors in no part', merged: 'tensors merged', carried: 'tensors inside objects', dequantized: 'tensors read as bfloat16 (--dequantize)', like: 'folder of --like', continued: 'continued an earlier run', kept_ranges: 'ranges kept', kept_bytes: 'bytes kept',
    records: 'records checked', renamed: 'tensors renamed by options', rewritten_bytes: 'bytes written again',
};
const words = key => LABELS[key] || key.replaceAll('_', ' ');

const MEANINGS = {
    'A': 'the first checkpoint of the command',
    'B': 'the second checkpoint of the command',
    'adapter': 'small matrices of LoRA that training adds to a model',
    'checksum': 'a number stored with data, which shows whether the data changed',
    'chunks': 'stored pieces of tensors: a tensor of several ranks has several',
    'cosine': 'of two tensors as vectors: 1 if their values point the same way, near 0 if they are unrelated',
    'distance': 'largest difference between an element of an input and the same element of the average',
    'dtype': 'type of the numbers of a tensor, such as bfloat16',
    'empty shards': 'shards without elements: the tensor has too few rows for all ranks',
    'exit status': 'the number with which the command ended; 0 is success, 1 a finding or difference, others are failures',
    'powers of two': 'how many values lie between each two powers of 2',
    'far': 'tensors whose values are unrelated to those of the other folder: they are probably wrong',
    'finding': 'id of a kind of defect or difference; "fsdpck help ID" describes it',
    'first shard': 'shape of the shard on the first rank that is not empty',
    'gradients': 'as large as the parameters of the rank',
    'judged': 'tensors whose cosine shows something: large enough, not norms or biases, without a norm that grew',
    'largest / mean': '1 if all ranks hold the same number of bytes; 2 if one of them holds twice the mean',
    'layout': 'how a tensor is distributed over the ranks: Shard(0) divides its rows, Replicate() stores all of it on each',
    'left out': 'in the source, but not in the output',
    'level': 'how much verify checks: quick, structure, coverage (metadata only), checksum (all bytes), numeric (also NaN)',
    'mesh': 'how the ranks are arranged: dp_replicate=2,dp_shard=4 are 2 groups of 4 ranks, 8 in all',
    'model key': 'key under which the training checkpoint keeps the model',
    'norm grew': 'the norm is more than ten times that of the tensor of --like, or fewer times if it has less than 10,000 elements: much training, or noise, and the cosine does not tell which',
    'scaled': 'the norm is more than ten times that of the tensor of --like, in the same direction: the values are those of --like, multiplied',
    'objects': 'data that are not tensors, such as the step, learning rates and the state of the data loader',
    'optimizer state': 'numbers that the optimizer keeps for each parameter, such as the two moments of Adam',
    'other': 'neither model nor optimizer, such as the step and the data loader',
    'padding': 'memory without content, besides the bytes that a rank holds: it makes all shards of a parameter as large as the first. It is counted once, although a gradient has as much; optimizer state has none',
    'part': 'model, optimizer or other; all stands for all of them',
    'projection': 'how much of the tensor of the other folder is in this one: 1 if it is unchanged, 0 if nothing is left',
    'ranks': 'processes of a training run, usually one GPU each',
    'records checked': 'stored units: a tensor of a safetensors file, or an entry of an archive of torch.save. Each shard of .distcp is an archive with several entries, of which one is a part of a tensor',
    'replicated tensors': 'tensors that each rank holds in full, after loading; a DCP folder stores them once',
    'relative change': 'size of the change of a tensor: the L2 norm of B - A in percent of that of A, with both norms. Of a layer: over its tensors that differ; of a part: over all its tensors. -: not known, or A is zero or has NaN or infinite numbers',
    'role': 'tensors of the same name in all layers; * stands for the number of the layer',
    'severity': report.command === 'diff' ? 'difference: A and B are not equal there (an error in --json); warning: something to look at' : 'error: the checkpoint cannot be used as it is; warning: something to look at; note: for your information',
    'shards': 'number of different pieces of the tensor',
    'slerp': 'spherical interpolation: between two tensors along an arc, not a line',
    'step': 'training step of the checkpoint. The files record it, or only the name of the folder has it, which anyone can change',
    'tensor': 'a named array of numbers, such as a weight matrix',
    'tied names': 'further names of a tensor that has already been counted',
    'trainer': 'program that saved the checkpoint',
    'unit': 'modules that FSDP gathers and shards together',
    'weight': 'factor of an input in the average',
    'elements': 'numbers in all tensors together',
    'files': 'those that contain tensors',
    'format': 'kind of the files: how the tensors are stored in them',
    'torch': 'release of PyTorch that wrote the files, as far as their bytes show it',
    'work items': 'parts of the run that one thread does at a time',
    'contiguous copies': 'runs of bytes that are copied in one piece',
};

/* Words inside values: formats, dims of meshes, placements. */
const TERMS = [
    [/^dcp$/, 'dcp', 'PyTorch Distributed Checkpoint: a folder of .distcp files, written by all ranks, with .metadata, which describes them'],
    [/^dcp-safetensors$/, 'dcp-safetensors', 'PyTorch Distributed Checkpoint whose files are safetensors'],
    [/^hf$/, 'hf', 'folder of Hugging Face: safetensors files and their index, as transformers reads it'],
    [/^hf-bin$/, 'hf-bin', 'older folder of Hugging Face: pytorch_model.bin files of torch.save'],
    [/^safetensors$/, 'safetensors', 'one file with tensors and nothing else; it cannot contain code'],
    [/^pt$/, 'pt', 'one file of torch.save'],
    [/^pt-ranks$/, 'pt-ranks', 'a file of torch.save for each rank'],
    [/^fsdp1$/, 'fsdp1', 'files of the first FSDP of PyTorch, in which the parameters of a unit are one flat tensor'],
    [/^deepspeed/, 'deepspeed', 'folder of DeepSpeed (ZeRO): a file of optimizer state for each rank'],
    [/^hdf5$/, 'hdf5', 'one HDF5 file'],
    [/^peft$/, 'peft', 'folder of an adapter, as the library PEFT saves it'],
    [/(^|[^\w])Shard\(/, 'Shard(0)', 'the tensor is divided along its first dimension, such as rows; each rank holds one piece. Shard(1): along the second, such as columns'],
    [/StridedShard/, '_StridedShard(0, split_factor=N)', 'divided twice along one dimension, by two dims of the mesh: the pieces of a rank are interleaved'],
    [/Replicate/, 'Replicate()', 'each rank holds the whole tensor'],
    [/ on \d+( ranks|x|,| \(|$)/, 'Shard(0) on 4', 'the same, over 4 ranks'],
    [/ on \d+ of \d+ ranks/, 'on 3 of 4 ranks', 'the tensor has too few rows (or columns) for all 4 ranks: the last ones store nothing of it'],
    [/whole/, 'whole', 'not divided: stored in one piece'],
    [/(^|,)(fsdp|dp_shard|shard)=/, 'fsdp, dp_shard', 'number of ranks over which each tensor is divided, as FSDP (fully sharded data parallel) does'],
    [/(^|,)(ddp|dp_replicate|replicate)=/, 'dp_replicate, ddp', 'number of groups of ranks that each store a copy of the model'],
    [/(^|,)dp=/, 'dp', 'data parallel: number of ranks that train on different data'],
    [/(^|,)tp=/, 'tp', 'tensor parallel: number of ranks that compute each layer together, each with a part of its matrices'],
    [/(^|,)pp=/, 'pp', 'pipeline parallel: number of groups of ranks with different layers'],
    [/(^|,)ep=/, 'ep', 'expert parallel: number of ranks with different experts'],
    [/(^|,)cp=/, 'cp', 'context parallel: number of ranks that share a sequence']];

const used = new Set();

/* The meanings of the terms in a value of the report, or undefined; none in values of other kinds. */
function termsOf(value) {
    const found = TERMS.filter(([test]) => test.test(value));
    for (const [, word, meaning] of found) {
        MEANINGS[word] = meaning;
        used.add(word);
    }
    return found.length > 0 ? found.map(([, word, meaning]) => `${word}: ${meaning}`).join('; ') : undefined;
}

/* A value whose terms are explained. */
const term = value => make('span', {title: termsOf(value)}, parted(value, /(?<=[,/])/));

/* The meaning of a label, or undefined. */
function explained(label) {
    if (MEANINGS[label] !== undefined)
        used.add(label);
    return MEANINGS[label];
}

function glossary() {
    const list = [...used].sort((a, b) => a.localeCompare(b));
    if (list.length > 0)
        section('Words on this page', make('dl', {class: 'list'}, ...list.map(word => make('div', {}, make('dt', {}, `${word}: `), make('dd', {}, MEANINGS[word])))));
}
