-- Removes the oldest entries: those past the length or the age, up to the first that a group has not acknowledged.
--
-- KEYS[1] the stream
-- ARGV[1] the most entries, or ''      ARGV[2] the most ms, or ''
-- ARGV[3] 'keep' what a group has not acknowledged, or 'drop' it     ARGV[4] how many entries to look at
-- Result  {how many went, '1' if there may be more, the group that holds it up or '', how many entries too many}
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return ms, seq
end
-- Numbers of any length, as text.
local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end
local function before(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  if a_ms == b_ms then
    return less(a_seq, b_seq)
  end
  return less(a_ms, b_ms)
end

local length = redis.call('XLEN', KEYS[1])
local excess = 0
if ARGV[1] ~= '' then
  excess = math.max(0, length - tonumber(ARGV[1]))
end
local oldest = ''
if ARGV[2] ~= '' then
  local time = redis.call('TIME')
  oldest = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[2])) .. '-0'
end

-- The first entry that a group still needs, and whose: its oldest pending one, or all after the last that it was given.
local groups = {}
for _, told in ipairs(length > 0 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}) do
  local group = {}
  for i = 1, #told, 2 do
    group[told[i]] = told[i + 1]
  end
  local summary = redis.call('XPENDING', KEYS[1], group.name)
  groups[#groups + 1] = {name = group.name, last = group['last-delivered-id'], pending = summary[2] or nil}
end
if #groups == 0 and ARGV[3] == 'keep' then
  return {0, '0', '', 0}
end
local function needed_by(id)
  for _, group in ipairs(groups) do
    local is_new = before(group.last, id)
    local is_pending = group.pending and not before(id, group.pending)
    if is_new or is_pending then
      return group.name
    end
  end
end

local look = tonumber(ARGV[4])
local entries = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', look + 1)
local cut, holder = nil, ''
local went = 0
for i = 1, #entries do
  local id = entries[i][1]
  if i > look or not (i <= excess or (oldest ~= '' and before(id, oldest))) then
    cut = id
    break
  end
  local group = ARGV[3] == 'keep' and needed_by(id)
  if group then
    cut, holder = id, group
    break
  end
  went = i
end
if went == 0 then
  return {0, '0', holder, excess}
end
if cut then
  redis.call('XTRIM', KEYS[1], 'MINID', '=', cut)
else
  redis.call('XTRIM', KEYS[1], 'MAXLEN', '=', 0)
end
return {went, went == look and '1' or '0', holder, math.max(0, excess - went)}
