-- How a counter is read. The start of every script here; README.md is the contract.
--
-- Redis runs the whole text at every call, and each `function` in it makes a closure again: there are
-- as few as the files allow.

local call, try = redis.call, redis.pcall
local tonumber, type = tonumber, type
local find, match, sub, format = string.find, string.match, string.sub, string.format
local floor, max, min = math.floor, math.max, math.min

-- What has a log: who is audited, beside the counters, and who is counted by nothing else.
local AUDITED, LOG = 'a', 'l'

-- Doubles hold every integer below this.
local EXACT = 9007199254740992

-- The units that a counter holds, 0 without one; nil and a text if they cannot be read.
local function count(key)
  local value = try('GET', key)
  if not value then
    return 0
  end
  if type(value) == 'table' then
    return nil, value.err
  end
  -- As strict as INCRBY, so that what was read can be added to.
  if value ~= '0' and not find(value, '^[1-9]%d*$') then
    return nil, 'ERR the counter does not hold a number of units'
  end
  local units = tonumber(value)
  if units >= EXACT then
    return nil, 'ERR the counter holds 2^53 units or more'
  end
  return units
end

-- By the name of an algorithm: whether it admits a cost beside these counts. Arithmetic only.
local rules = {}
-- By the name of one that counts by no counter, but by a key of its own: `read`, `charge` and `leaving`. Only in calls
-- with a log.
local own = {}
